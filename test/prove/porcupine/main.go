// Judges history.ndjson by Porcupine (https://github.com/anishathalye/porcupine): is each entry a register that can be
// explained by one order of its updates and reads? It shares no code and no idea with the oracle of the project: it
// knows no revisions, only when calls began and ended and what they showed.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Call, Return float64
	Op, Outcome  string
	Change, Pet  int
	Quantity     int
	Entries      map[string]int // what a read showed; of the line "start", what was there at first
}

// An update of an entry (isSet), or what a read showed of it.
type access struct {
	isSet    bool
	quantity int
}

func nanoseconds(ms float64) int64 { return int64(ms * 1e6) }

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		panic(err)
	}
	histories := map[int][]porcupine.Operation{}
	sets := map[int]*porcupine.Operation{} // by change: its attempts are one operation
	pets := map[int]int{}
	start := map[int]int{}
	shown := map[[2]int]bool{}
	for decoder := json.NewDecoder(file); decoder.More(); {
		var l line
		if err := decoder.Decode(&l); err != nil {
			panic(err)
		}
		for id, quantity := range l.Entries {
			pet, _ := strconv.Atoi(id)
			if l.Op == "start" {
				start[pet] = quantity
				continue
			}
			shown[[2]int{pet, quantity}] = true
			read := porcupine.Operation{Input: access{false, quantity}, Call: nanoseconds(l.Call), Return: nanoseconds(l.Return)}
			histories[pet] = append(histories[pet], read)
		}
		if l.Op != "set" || l.Outcome == "refused" {
			continue
		}
		set := sets[l.Change]
		if set == nil {
			set = &porcupine.Operation{Input: access{true, l.Quantity}, Call: nanoseconds(l.Call), Return: math.MaxInt64}
			sets[l.Change], pets[l.Change] = set, l.Pet
		}
		if l.Outcome == "done" {
			set.Return = min(set.Return, nanoseconds(l.Return))
		}
	}
	for change, set := range sets {
		// One without an answer that nobody has seen may as well not have happened.
		if pet := pets[change]; set.Return < math.MaxInt64 || shown[[2]int{pet, set.Input.(access).quantity}] {
			histories[pet] = append(histories[pet], *set)
		}
	}
	if len(histories) == 0 {
		fmt.Println("the history is empty")
		os.Exit(2)
	}
	verdict := 0
	for pet, history := range histories {
		model := porcupine.Model{
			Init: func() any { return start[pet] },
			Step: func(state, input, _ any) (bool, any) {
				a := input.(access)
				return a.isSet || a.quantity == state.(int), a.quantity
			},
		}
		result := porcupine.CheckOperationsTimeout(model, history, 5*time.Minute)
		fmt.Printf("entry %d: %d operations: %s\n", pet, len(history), result)
		if result != porcupine.Ok {
			verdict = 1
		}
	}
	os.Exit(verdict)
}
