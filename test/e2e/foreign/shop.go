// Uses the client that openapi-generator makes for Go.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	api "localhost/petstore/client"
)

const id = 9223372036854775807

func must[T any](value T, _ any, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	configuration := api.NewConfiguration()
	configuration.Servers = api.ServerConfigurations{{URL: os.Getenv("API")}}
	client := api.NewAPIClient(configuration)
	ctx := context.WithValue(context.Background(), api.ContextAccessToken, os.Getenv("KEY"))

	fmt.Print("list")
	for _, item := range must(client.InventoryAPI.ListInventory(ctx).Execute()) {
		fmt.Print(" ", item.PetId)
	}
	updated := must(client.InventoryAPI.UpdateInventory(ctx, id).InventoryUpdate(*api.NewInventoryUpdate(7)).Execute())
	fmt.Println("\nupdate", updated.PetId, updated.Quantity, updated.Status)
	updates := []api.BulkUpdate{*api.NewBulkUpdate(id, 9), *api.NewBulkUpdate(id-1, 1)}
	results := must(client.InventoryAPI.BulkUpdateInventory(ctx).BulkUpdate(updates).Execute())
	made, refused := results[0].UpdatedItem, results[1].RefusedUpdate
	fmt.Println("bulk", made.PetId, made.Quantity, refused.PetId, refused.Error.Code)
	adjustments := []api.Adjustment{*api.NewAdjustment(id, -2)}
	key := fmt.Sprint("go-", time.Now().UnixNano())
	adjusted := must(client.InventoryAPI.AdjustInventory(ctx).IdempotencyKey(key).Adjustment(adjustments).Execute())
	fmt.Println("adjust", adjusted[0].PetId, adjusted[0].Quantity)
	fmt.Print("history")
	for _, change := range must(client.InventoryAPI.GetInventoryHistory(ctx, id).Limit(3).Execute()).Changes {
		fmt.Printf(" %s:%d", change.Kind, *change.QuantityAfter.Get())
	}
	rateLimit := must(client.AccountAPI.GetRateLimit(ctx).Execute())
	fmt.Print("\nrate_limit ", rateLimit.Plan)
	for _, window := range rateLimit.Windows {
		fmt.Print(" ", window.Name)
	}
	fmt.Println("\nusage", must(client.AccountAPI.GetUsage(ctx).Hours(1).Execute()).StepSeconds)
	orders := must(client.StoreAPI.GetOrders(ctx).Execute())
	last := orders[len(orders)-1]
	fmt.Println("orders", len(orders), *last.Id, *last.PetId)
	_, _, err := client.InventoryAPI.GetInventoryItem(ctx, id-1).Execute()
	body := err.(*api.GenericOpenAPIError).Model().(api.Error)
	fmt.Println("error", body.Code)
}
