"""Lazy fusion inside a trial: steps begin eagerly and are compiled where measuring says that it pays."""
