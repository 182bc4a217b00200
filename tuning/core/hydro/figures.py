"""Charts of the trust reports."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots


def coordinate_figure(table: pd.DataFrame, passed: bool) -> go.Figure:
    """Activation at the start and its change by training, against width: one line per layer."""
    last = int(table["step"].max())
    figure = make_subplots(rows=1, cols=2, subplot_titles=("at the start", f"change after {last} steps"))
    for column, step, quantity in ((1, 0, "l1"), (2, last, "change")):
        for layer, rows in table[table["step"] == step].groupby("layer", sort=False):
            rows = rows.sort_values("scaling", ascending=False)
            figure.add_scatter(
                x=1.0 / rows["scaling"],
                y=rows[quantity].replace(0.0, np.nan),
                name=str(layer),
                mode="lines+markers",
                legendgroup=str(layer),
                showlegend=column == 2,
                row=1,
                col=column,
            )
    figure.update_xaxes(type="log", title="width relative to the target")
    figure.update_yaxes(type="log", title="mean absolute value")
    verdict = (
        "flat: hyperparameters should transfer" if passed else "not flat: hyperparameters will not transfer"
    )
    figure.update_layout(title=f"Coordinate check: {verdict}", template="plotly_white")
    return figure


def transfer_figure(table: pd.DataFrame, correlation: float) -> go.Figure:
    """Final loss against learning rate, one line per width."""
    figure = go.Figure()
    for scaling, rows in table.groupby("scaling", sort=True):
        rows = rows.sort_values("lr")
        figure.add_scatter(
            x=rows["lr"],
            y=rows["loss"].replace([np.inf, -np.inf], np.nan),
            name=f"width / {scaling:g}",
            mode="lines+markers",
        )
    figure.update_xaxes(type="log", title="learning rate of the target")
    figure.update_yaxes(type="log", title="training loss at the end")
    figure.update_layout(
        title=f"Ranking of learning rates at two widths: Spearman {correlation:.2f}", template="plotly_white"
    )
    return figure
