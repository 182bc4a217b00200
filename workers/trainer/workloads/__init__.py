"""The bundled workloads. None of them downloads anything."""
