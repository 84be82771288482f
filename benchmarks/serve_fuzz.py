"""Two thousand generated requests against a service in a process of its own: does it do what its document says?

schemathesis makes the requests from the service's OpenAPI document: half as the document allows, half as it does not.
Every answer must have a documented status, type and shape, requests that are not allowed must be refused, and no answer
may be a server error. Prints what was found and exits with status 1 when something was.

    make bench-serve-fuzz
    python benchmarks/serve_fuzz.py 500
"""

from __future__ import annotations

import collections
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks

import common
from serve import make_run

CASES = 2000
# of all cases; the other paths have no parameters, so that there is one case of each
SHARES = {
    "/v1/intervals": 0.43,
    "/v1/complete": 0.25,
    "/v1/evidence": 0.12,
    "/v1/entities": 0.12,
    "/v1/relations": 0.08,
}
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
]


def fuzz(operation: Any, cases: int, statuses: collections.Counter[int]) -> str | None:
    """So many requests to one path; what was found, if anything."""
    kinds = [operation.as_strategy(GenerationMode.POSITIVE)]
    if operation.path in SHARES:
        kinds.append(operation.as_strategy(GenerationMode.NEGATIVE))

    @seed(0)
    @given(case=st.one_of(kinds))
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        response = case.call()
        statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    try:
        ask()
    except BaseException as error:  # schemathesis raises groups of failures
        return f"{operation.method.upper()} {operation.path}: {error}"[:2000]
    return None


def main() -> int:
    total = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    statuses: collections.Counter[int] = collections.Counter()
    found: list[str] = []
    paths: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as temporary:
        run = make_run(Path(temporary))
        command = common.unkgcp("serve", run, "--port", 0, "--max-triples", 100)
        service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            base = service.stdout.readline().split()[-1]  # type: ignore[union-attr]
            schema = schemathesis.openapi.from_url(f"{base}openapi.json")
            start = time.monotonic()
            operations = [result.ok() for result in schema.get_all_operations()]
            for operation in operations:
                cases = math.ceil(total * SHARES.get(operation.path, 0))
                before = statuses.total()
                problem = fuzz(operation, max(cases, 1), statuses)
                paths[operation.path] = statuses.total() - before
                if problem is not None:
                    found.append(problem)
            seconds = time.monotonic() - start
        finally:
            service.terminate()
            service.wait(10)
    result = {
        "requests": statuses.total(),
        "seconds": round(seconds, 1),
        "schemathesis": schemathesis.SCHEMATHESIS_VERSION,
        "paths": paths,
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "found": found,
    }
    common.write("serve_fuzz", result)
    print(json.dumps(result, indent=2))
    return 1 if found or any(status >= 500 for status in statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
