"""``weft watch``: runs from their log folders, in the browser."""

from __future__ import annotations

import argparse
import time

EXAMPLES = """\
examples:
  weft watch runs --open              compare all runs below a folder, in the browser
  weft watch runs/a runs/b            some of them
  weft watch runs -o report.html      write a page instead of serving one
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Show and compare the runs below log folders: event files, metrics.jsonl, metrics.csv."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("folders", nargs="+", help="where the logs are")
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    parser.add_argument("--open", action="store_true", help="open the browser")
    parser.add_argument("-o", "--output", metavar="FILE.html", help="write a page, serve nothing")


def run(options: argparse.Namespace) -> int:
    """Serve the runs until Ctrl-C, or write them as a page."""
    from weft.watching import page, watch

    if options.output:
        print(page(*options.folders, path=options.output))
        return 0
    with watch(*options.folders, port=options.port, open=options.open) as served:
        print(f"weft watch: {served.url}\nCtrl-C ends it", flush=True)
        try:
            while not served.closed:
                time.sleep(0.5)
        except KeyboardInterrupt:
            pass
    return 0
