"""What can go wrong between a user's model and a trained surrogate."""


class HydroError(Exception):
    """A model or call that Hydro cannot work with; the message names the layer and says what to do."""


class TraceError(HydroError):
    """The forward pass cannot be recorded as a graph."""


class ShrinkError(HydroError):
    """The model cannot be made narrower under the requested parametrization."""


class FuseError(HydroError):
    """Several models cannot be trained as one module."""


class HydroWarning(UserWarning):
    """Hydro changed something that the user wrote, or a result deserves less trust."""
