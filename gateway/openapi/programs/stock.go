// Reads the stock, sells one animal of the first entry
// exactly once, and reads what has changed since.
// Needs Go 1.24 or later, and the variable KEY.
package main

import (
	cryptorand "crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const api = "http://127.0.0.1:8080/v1"
const maxTries = 5
const maxWait = 2 * time.Minute

var client = http.Client{Timeout: 10 * time.Second}

// call sends a request, and again after 408, 429, 5xx and a lost
// answer: the same one each time.
func call(method, path, key, body string) ([]byte, http.Header) {
	for tries := 1; ; tries++ {
		request, err := http.NewRequest(method, api+path, strings.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+os.Getenv("KEY"))
		if key != "" {
			request.Header.Set("Idempotency-Key", key)
			request.Header.Set("Content-Type", "application/json")
		}
		wait := time.Duration(rand.Float64() * float64(time.Second<<tries))
		response, err := client.Do(request)
		var answer []byte
		if err == nil {
			answer, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		if err == nil {
			if response.StatusCode < 300 {
				return answer, response.Header
			}
			problem := struct{ Code, Message string }{Code: response.Status}
			json.Unmarshal(answer, &problem) // a page of a proxy leaves Code as it is
			err = fmt.Errorf("%s: %s %s", path, problem.Code, problem.Message)
			if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
				wait = time.Duration(seconds) * time.Second
			}
			status := response.StatusCode
			mayRepeat := status == 408 || status == 429 || status >= 500
			if !mayRepeat || problem.Code == "api_key_banned" || wait > maxWait {
				log.Fatal(err)
			}
		}
		if tries == maxTries {
			log.Fatal(err)
		}
		time.Sleep(wait)
	}
}

func main() {
	answer, header := call("GET", "/inventory", "", "")
	var stock []struct{ PetId int64 }
	if err := json.Unmarshal(answer, &stock); err != nil || len(stock) == 0 {
		log.Fatal("the stock has no entries: ", err)
	}
	tag := header.Get("ETag")
	fmt.Printf("The stock is at %s and begins with pet %d.\n", tag, stock[0].PetId)

	// Keep the key with your order, to repeat it after a crash.
	once := cryptorand.Text()
	adjustments := fmt.Sprintf(`[{"petId": %d, "delta": -1, "reason": "sold"}]`, stock[0].PetId)
	sold, _ := call("POST", "/inventory/adjustments", once, adjustments)
	fmt.Printf("Sold one: %s\n", sold)

	changes, _ := call("GET", "/inventory/changes?since="+url.QueryEscape(tag), "", "")
	fmt.Printf("Changed since: %s\n", changes)
}
