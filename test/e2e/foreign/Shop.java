import java.util.List;
import java.util.stream.Collectors;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.AccountApi;
import org.openapitools.client.api.InventoryApi;
import org.openapitools.client.api.StoreApi;
import org.openapitools.client.model.Adjustment;
import org.openapitools.client.model.BulkUpdate;
import org.openapitools.client.model.InventoryUpdate;

/** Uses the client that openapi-generator makes for Java. */
public class Shop {
  private static final long ID = Long.MAX_VALUE;

  public static void main(String[] args) throws Exception {
    var client = new ApiClient();
    client.setBasePath(System.getenv("API"));
    client.setBearerToken(System.getenv("KEY"));
    var inventory = new InventoryApi(client);

    var list = inventory.listInventory(null, null, null, null, null);
    print("list", list.stream().map(item -> item.getPetId()).toList());
    var updated = inventory.updateInventory(ID, new InventoryUpdate().quantity(7), null, null, null);
    print("update", List.of(updated.getPetId(), updated.getQuantity(), updated.getStatus()));
    var updates =
        List.of(new BulkUpdate().petId(ID).quantity(9), new BulkUpdate().petId(ID - 1).quantity(1));
    var results = inventory.bulkUpdateInventory(updates, null, null);
    var made = results.get(0).getUpdatedItem();
    var refused = results.get(1).getRefusedUpdate();
    print("bulk", List.of(made.getPetId(), made.getQuantity(), refused.getPetId(), refused.getError().getCode()));
    var adjustments = List.of(new Adjustment().petId(ID).delta(-2));
    var adjusted = inventory.adjustInventory("java-" + System.nanoTime(), adjustments, null).get(0);
    print("adjust", List.of(adjusted.getPetId(), adjusted.getQuantity()));
    var history = inventory.getInventoryHistory(ID, 3, null, null).getChanges();
    print("history", history.stream().map(change -> change.getKind() + ":" + change.getQuantityAfter()).toList());
    var account = new AccountApi(client);
    var rateLimit = account.getRateLimit(null);
    var names = rateLimit.getWindows().stream().map(window -> " " + window.getName()).collect(Collectors.joining());
    print("rate_limit", List.of(rateLimit.getPlan() + names));
    print("usage", List.of(account.getUsage(1, null).getStepSeconds()));
    var orders = new StoreApi(client).getOrders(null, null);
    var last = orders.get(orders.size() - 1);
    print("orders", List.of(orders.size(), last.getId(), last.getPetId()));
    try {
      inventory.getInventoryItem(ID - 1, null, null, null);
    } catch (ApiException error) {
      print("error", List.of(error.getResponseBody().replaceAll(".*\"code\":\"(\\w+)\".*", "$1")));
    }
  }

  private static void print(String name, List<?> values) {
    System.out.println(name + " " + values.stream().map(String::valueOf).collect(Collectors.joining(" ")));
  }
}
