# Reads the stock, sets a quantity so that it happens
# once, and reads what has changed since.
# Needs Python 3.8 or later, and the variable KEY.
import json
import os
import random
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

API = "http://127.0.0.1:8080/v1"
MAX_TRIES = 5


def call(path, method="GET", headers={}, body=None):
    """Sends a request, and again after 429, 5xx and a lost
    connection: the same one each time."""
    data = None if body is None else json.dumps(body).encode()
    headers = {**headers, "Authorization": f"Bearer {os.environ['KEY']}"}
    request = urllib.request.Request(API + path, data, headers, method=method)
    for tries in range(1, MAX_TRIES + 1):
        retry_after = None
        try:
            with urllib.request.urlopen(request) as response:
                return json.load(response), response.headers
        except urllib.error.HTTPError as error:
            problem = json.load(error)
            retry_after = error.headers.get("Retry-After")
            may_repeat = error.code == 429 or error.code >= 500
            if not may_repeat or problem["code"] == "api_key_banned":
                raise SystemExit(f"{path}: {problem['code']} {problem['message']}")
        except OSError as error:
            problem = {"code": "no answer", "message": str(error)}
        if tries < MAX_TRIES:
            time.sleep(float(retry_after or 2**tries * random.random()))
    raise SystemExit(f"{path}: {problem['code']} {problem['message']}")


stock, headers = call("/inventory")
tag, first = headers["ETag"], stock[0]["petId"]
print(f"The stock is at {tag} and begins with pet {first}.")

json_once = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
updated, _ = call(f"/inventory/{first}", "PATCH", json_once, {"quantity": 12})
print("Updated:", json.dumps(updated))

changes, _ = call(f"/inventory/changes?since={urllib.parse.quote(tag)}")
print("Changed since:", json.dumps(changes))
