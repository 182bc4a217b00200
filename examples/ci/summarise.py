"""Turn what `forebay submit --json` printed into a run summary, or with --outputs into step outputs."""

import json
import sys
from pathlib import Path

MEANING = {
    0: "completed",
    1: "failed",
    2: "bad input",
    3: "not signed in or not allowed",
    4: "conflict",
    5: "still running when the time was up",
    6: "server not reachable",
    7: "completed, but the objective was not met",
}


def main(arguments: list[str]) -> None:
    """Print the summary or the outputs of one job."""
    wants_outputs = "--outputs" in arguments
    path, outcome = (argument for argument in arguments if argument != "--outputs")
    text = Path(path).read_text()
    job = json.loads(text) if text.strip() else {}
    best = (job.get("summary") or {}).get("best") or {}
    if wants_outputs:
        print(f"job={job.get('id', '')}\nmetric={best.get('metric', '')}")
        return
    print(f"### Forebay: {MEANING.get(int(outcome), f'exit code {outcome}')}\n")
    if job:
        print(
            f"[{escaped(job['name'])}]({job['links']['html'] or job['links']['self']}) is {job['state']}.\n"
        )
    if best:
        print(f"Best metric **{best['metric']:g}** by trial {best['trial']}:\n")
        print("| parameter | value |\n| --- | --- |")
        for name, value in best["config"].items():
            print(f"| {escaped(name)} | {escaped(str(value))} |")


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    for character in "\\`*_[]<>|#":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")


if __name__ == "__main__":
    main(sys.argv[1:])
