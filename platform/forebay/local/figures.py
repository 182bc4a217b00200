"""A study as Plotly figures."""

from typing import Any

from tuning.core.study import Study

# the colours of Okabe and Ito, told apart by everybody
COLOURS = {
    "completed": "#009E73",
    "stopped": "#999999",
    "failed": "#D55E00",
    "cut": "#E69F00",
    "running": "#0072B2",
    "waiting": "#CCCCCC",
    "target": "#CC79A7",
}


def all_figures(study: Study, document: dict[str, Any]) -> dict[str, Any]:
    """Return every figure that this study can fill, by name."""
    figures = {
        "learning_curves": learning_curves(study),
        "best_so_far": best_so_far(study, document),
        "parallel_coordinates": parallel_coordinates(study),
        "timeline": timeline(document),
    }
    if document["targets"]:
        figures["surrogate_against_target"] = surrogate_against_target(study)
    return figures


def _figure(title: str, x: str, y: str) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(title=title, xaxis_title=x, yaxis_title=y, template="plotly_white")
    return figure


def learning_curves(study: Study) -> Any:
    """Return the metric of every trial over its epochs; a non-finite value is a gap."""
    name = study.state.facts.metric
    figure = _figure("Learning curves", "epoch", name)
    for trial in study.trials:
        epochs = sorted(trial.metrics)
        figure.add_scatter(
            x=epochs,
            y=[trial.metrics[epoch].get(name) for epoch in epochs],
            mode="lines+markers" if len(epochs) == 1 else "lines",
            name=f"trial {trial.number}",
            line={"color": COLOURS[str(trial.state)], "width": 1},
            showlegend=False,
        )
    return figure


def best_so_far(study: Study, document: dict[str, Any]) -> Any:
    """Return the best final metric after each trial that ended, in the order in which they ended."""
    name, mode = study.state.facts.metric, study.state.facts.mode
    figure = _figure("Best so far", "trials ended", name)
    better = max if mode == "max" else min
    best: list[float] = []
    for trial in sorted(study.trials, key=lambda t: t.ended_order if t.ended_order is not None else 0):
        value = trial.metric(name)
        if value is not None:
            best.append(better(best[-1], value) if best else value)
    figure.add_scatter(x=list(range(1, len(best) + 1)), y=best, mode="lines", line={"shape": "hv"})
    if document["best"] is not None:
        figure.add_hline(y=document["best"]["metric"], line_dash="dot", annotation_text="best full model")
    return figure


def parallel_coordinates(study: Study) -> Any:
    """Return the trials with a metric as lines over their hyperparameters, each axis scaled to its range."""
    import plotly.graph_objects as go

    space, name = study.state.facts.space, study.state.facts.metric
    trials = [trial for trial in study.trials if trial.metric(name) is not None]
    dimensions: list[dict[str, Any]] = []
    for index, parameter in enumerate(space.parameters):
        places = [space.encode(trial.config)[index] for trial in trials]
        ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
        labels = [str(parameter.distribution.from_unit(min(tick, 0.999999))) for tick in ticks]
        dimensions.append(
            {
                "label": parameter.name,
                "values": places,
                "range": [0, 1],
                "tickvals": ticks,
                "ticktext": labels,
            }
        )
    values = [trial.metric(name) for trial in trials]
    dimensions.append({"label": name, "values": values})
    line = {"color": values, "colorscale": "Viridis", "showscale": True}
    figure = go.Figure(go.Parcoords(dimensions=dimensions, line=line))
    figure.update_layout(title="Hyperparameters", template="plotly_white")
    return figure


def timeline(document: dict[str, Any]) -> Any:
    """Return containers and targets over time, one lane per device."""
    figure = _figure("Devices over time", "seconds", "device")
    bars = [
        (c["device"], c["start_s"], c["end_s"], f"{c['size']} trials, batch {c['batch_size']}", "running")
        for c in document["containers"]
    ]
    bars += [
        (device, t["start_s"], t["end_s"], f"target {t['trial']}", "target")
        for t in document["targets"]
        for device in (t["device"], *t["beside"])
    ]
    for device, start_s, end_s, label, kind in bars:
        if start_s is None or end_s is None:
            continue
        figure.add_bar(
            x=[end_s - start_s],
            base=[start_s],
            y=[device],
            orientation="h",
            name=label,
            hovertext=f"{label}: {start_s:.2f} to {end_s:.2f} s",
            marker={"color": COLOURS[kind], "line": {"color": "white", "width": 1}},
            showlegend=False,
        )
    figure.update_layout(barmode="overlay")
    return figure


def surrogate_against_target(study: Study) -> Any:
    """Return the metric of every trained target over the one of its surrogate."""
    name = study.state.facts.metric
    figure = _figure("Surrogates against targets", f"{name} of the surrogate", f"{name} at full width")
    trained = [target for target in study.targets if target.metric is not None]
    figure.add_scatter(
        x=[study.trials[target.trial].metric(name) for target in trained],
        y=[target.metric for target in trained],
        text=[f"trial {target.trial}" for target in trained],
        mode="markers+text",
        textposition="top center",
        marker={"color": COLOURS["target"], "size": 10},
    )
    return figure
