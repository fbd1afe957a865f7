// Counts documents by their member "type".
//
// State: "doc/<id>" is the type that a document was counted under, "type/<type>" is how many there are.
package main

import (
	"strconv"
	"strings"

	"nacre"
)

type counter struct{}

func init() { nacre.Run(counter{}) }

// The compiler says what a method lacks to be one of a plugin.
var _ interface {
	nacre.Updater
	nacre.Deleter
	nacre.Handler
} = counter{}

// Go asks for it; a plugin is called by its methods.
func main() {}

// OnUpdate counts a document that was created or changed.
func (counter) OnUpdate(event nacre.Event) error {
	// What is not named here is skipped: to read a large document into a map takes much longer.
	var document struct {
		Type any `json:"type"`
	}
	if event.IsJSON() {
		// A document that is no object has no type.
		_ = event.JSON(&document)
	}
	kind, ok := document.Type.(string)
	if !ok {
		kind = "none"
	}
	forget(event.ID())
	nacre.State.Put("doc/"+event.ID(), []byte(kind))
	add(kind, 1)
	return nil
}

// OnDelete counts a document no longer.
func (counter) OnDelete(event nacre.Event) error {
	forget(event.ID())
	return nil
}

// Handle answers with the counts.
func (counter) Handle(nacre.Request) (nacre.Response, error) {
	counts := map[string]int{}
	for entry := range nacre.State.ScanPrefix("type/") {
		counts[strings.TrimPrefix(entry.Key, "type/")] = number(entry.Value)
	}
	return nacre.JSON(200, counts)
}

// forget takes a document away from the type that it was counted under.
func forget(id string) {
	if kind, known := nacre.State.Get("doc/" + id); known {
		add(string(kind), -1)
		nacre.State.Delete("doc/" + id)
	}
}

func add(kind string, delta int) {
	count, _ := nacre.State.Get("type/" + kind)
	if sum := number(count) + delta; sum == 0 {
		nacre.State.Delete("type/" + kind)
	} else {
		nacre.State.Put("type/"+kind, []byte(strconv.Itoa(sum)))
	}
}

// number is what text says; 0 of none.
func number(text []byte) int {
	value, _ := strconv.Atoi(string(text))
	return value
}
