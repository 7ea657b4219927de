"""Uses the client that openapi-generator makes for Python."""

import os

import openapi_client as api

ID = 9223372036854775807
configuration = api.Configuration(host=os.environ["API"], access_token=os.environ["KEY"])
with api.ApiClient(configuration) as client:
    inventory = api.InventoryApi(client)
    print("list", *[item.pet_id for item in inventory.list_inventory()])
    updated = inventory.update_inventory(ID, api.InventoryUpdate(quantity=7))
    print("update", updated.pet_id, updated.quantity, updated.status.value)
    updates = [api.BulkUpdate(pet_id=ID, quantity=9), api.BulkUpdate(pet_id=ID - 1, quantity=1)]
    made, refused = [result.actual_instance for result in inventory.bulk_update_inventory(updates)]
    print("bulk", made.pet_id, made.quantity, refused.pet_id, refused.error.code)
    (adjusted,) = inventory.adjust_inventory(os.urandom(8).hex(), [api.Adjustment(pet_id=ID, delta=-2)])
    print("adjust", adjusted.pet_id, adjusted.quantity)
    history = inventory.get_inventory_history(ID, limit=3)
    print("history", *[f"{change.kind}:{change.quantity_after}" for change in history.changes])
    account = api.AccountApi(client)
    rate_limit = account.get_rate_limit()
    print("rate_limit", rate_limit.plan, *[window.name for window in rate_limit.windows])
    print("usage", account.get_usage(hours=1).step_seconds)
    orders = api.StoreApi(client).get_orders()
    print("orders", len(orders), orders[-1].id, orders[-1].pet_id)
    try:
        inventory.get_inventory_item(ID - 1)
    except api.exceptions.NotFoundException as error:
        print("error", error.data.code)
