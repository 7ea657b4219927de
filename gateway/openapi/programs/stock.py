# Reads the stock, sells one animal of the first entry
# exactly once, and reads what has changed since.
# Needs Python 3.8 or later, and the variable KEY.
import http.client
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
MAX_WAIT = 120  # seconds


def call(path, method="GET", headers={}, body=None):
    """Sends a request, and again after 408, 429, 5xx and a lost
    answer: the same one each time."""
    data = None if body is None else json.dumps(body).encode()
    headers = {**headers, "Authorization": f"Bearer {os.environ['KEY']}"}
    request = urllib.request.Request(API + path, data, headers, method=method)
    for tries in range(1, MAX_TRIES + 1):
        may_repeat = True
        wait = 2**tries * random.random()
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return json.load(response), response.headers
        except urllib.error.HTTPError as error:
            problem = {"code": error.code, "message": error.reason}
            try:
                problem.update(json.load(error))
            except (ValueError, TypeError, OSError, http.client.HTTPException):
                pass  # a page of a proxy, or a part of an answer
            is_banned = problem["code"] == "api_key_banned"
            may_repeat = not is_banned and (error.code in (408, 429) or error.code >= 500)
            retry_after = error.headers.get("Retry-After", "")
            if retry_after.isdigit():
                wait = int(retry_after)
        except (OSError, http.client.HTTPException) as error:
            problem = {"code": "no answer", "message": str(error)}
        if not may_repeat or wait > MAX_WAIT or tries == MAX_TRIES:
            break
        time.sleep(wait)
    raise SystemExit(f"{path}: {problem['code']} {problem['message']}")


stock, headers = call("/inventory")
tag, first = headers["ETag"], stock[0]["petId"]
print(f"The stock is at {tag} and begins with pet {first}.")

# Keep the key with your order, to repeat it after a crash.
json_once = {"Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
adjustments = [{"petId": first, "delta": -1, "reason": "sold"}]
sold, _ = call("/inventory/adjustments", "POST", json_once, adjustments)
print("Sold one:", json.dumps(sold))

changes, _ = call(f"/inventory/changes?since={urllib.parse.quote(tag)}")
print("Changed since:", json.dumps(changes))
