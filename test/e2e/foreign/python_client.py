"""Uses the client that openapi-python-client makes."""

import os

from petstore import AuthenticatedClient
from petstore.api.account import get_rate_limit, get_usage
from petstore.api.inventory import (
    adjust_inventory,
    bulk_update_inventory,
    get_inventory_history,
    get_inventory_item,
    list_inventory,
    update_inventory,
)
from petstore.api.store import get_orders
from petstore.models import Adjustment, BulkUpdate, InventoryUpdate

ID = 9223372036854775807
client = AuthenticatedClient(base_url=os.environ["API"], token=os.environ["KEY"])
print("list", *[item.pet_id for item in list_inventory.sync(client=client)])
updated = update_inventory.sync(ID, client=client, body=InventoryUpdate(quantity=7))
print("update", updated.pet_id, updated.quantity, updated.status.value)
updates = [BulkUpdate(pet_id=ID, quantity=9), BulkUpdate(pet_id=ID - 1, quantity=1)]
made, refused = bulk_update_inventory.sync(client=client, body=updates)
print("bulk", made.pet_id, made.quantity, refused.pet_id, refused.error.code.value)
(adjusted,) = adjust_inventory.sync(
    client=client, body=[Adjustment(pet_id=ID, delta=-2)], idempotency_key=os.urandom(8).hex()
)
print("adjust", adjusted.pet_id, adjusted.quantity)
history = get_inventory_history.sync(ID, client=client, limit=3)
print("history", *[f"{change.kind.value}:{change.quantity_after}" for change in history.changes])
rate_limit = get_rate_limit.sync(client=client)
print("rate_limit", rate_limit.plan.value, *[window.name.value for window in rate_limit.windows])
print("usage", int(get_usage.sync(client=client, hours=1).step_seconds))
orders = get_orders.sync(client=client)
print("orders", len(orders), orders[-1].id, orders[-1].pet_id)
print("error", get_inventory_item.sync(ID - 1, client=client).code.value)
