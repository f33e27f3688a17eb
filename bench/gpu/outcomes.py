"""A pytest plugin: the outcome of each test is a line of a file as soon as it is known, so a killed run tells too."""

import json
import os


def pytest_runtest_logreport(report):
    if os.environ.get("PYTEST_XDIST_WORKER") or (report.when != "call" and report.passed):
        return  # workers report to the process that started them
    line = {"test": report.nodeid, "outcome": report.outcome, "seconds": report.duration}
    if report.failed:
        line["why"] = str(report.longrepr)[-1500:]
    with open(os.environ["SWIFTK_OUTCOMES"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
