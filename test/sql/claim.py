"""Claims and completes works of the ledger from Python: the standard library and psql, no package.

    python3 claim.py work-id  KIND VERSION KEY
    python3 claim.py claim    KIND VERSION KEY [PAYLOAD]
    python3 claim.py complete WORK_ID TOKEN RESULT [REFERENCE]

PAYLOAD and RESULT are JSON. PGHOST, PGPORT, PGDATABASE, PGUSER and PGPASSWORD say where the ledger is, LEDGER_SCHEMA
in which schema (default: idempotency). Prints one line: the digits, or the answer as JSON. What the ledger refuses is
said on the error output, with exit code 1.
"""

import hashlib
import json
import os
import subprocess
import sys
import uuid


def work_id(kind, version, key):
    """What counts as the same work: the same digits in every language."""
    return hashlib.sha256(f"{kind}:{version}:{key}".encode("utf-8")).hexdigest()


def literal(value):
    """A value as SQL text; None is null. Through the input of psql, because everybody can read a command line."""
    if value is None:
        return "null"
    if "\0" in value:
        raise ValueError("PostgreSQL has no NUL in its texts")
    return "'" + value.replace("'", "''") + "'"


def call(function, *arguments):
    """One function call, committed when it returns; the row as a dictionary."""
    schema = os.environ.get("LEDGER_SCHEMA", "idempotency").replace('"', '""')
    values = ", ".join(literal(argument) for argument in arguments)
    # "standard_conforming_strings": literal() leaves backslashes as they are
    statement = f"""set standard_conforming_strings = on;
        select row_to_json(answer) from "{schema}".{function}({values}) as answer;"""
    done = subprocess.run(
        ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-f", "-"],
        input=statement, capture_output=True, encoding="utf-8",
        env={**os.environ, "PGCLIENTENCODING": "UTF8"}, check=False,
    )
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"psql ended with {done.returncode}")
    return json.loads(done.stdout)


def claim(kind, version, key, payload=None):
    """Only the status "claimed" means: do it. The token is made here, fresh for every claim."""
    options = json.dumps({"kind": kind, "version": version, "caller": {"instance": "python", "execution": str(os.getpid())}})
    return call("claim_work", work_id(kind, version, key), key, str(uuid.uuid4()), payload, None, options)


def complete(work, token, result, reference=None):
    return call("complete_work", work, token, result, reference, None)


if __name__ == "__main__":
    operations = {"work-id": work_id, "claim": claim, "complete": complete}
    if len(sys.argv) < 2 or sys.argv[1] not in operations:
        sys.exit(__doc__)
    answer = operations[sys.argv[1]](*sys.argv[2:])
    print(answer if isinstance(answer, str) else json.dumps(answer))
