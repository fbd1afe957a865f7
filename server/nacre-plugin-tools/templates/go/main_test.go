package main

import (
	"testing"

	"nacre"
)

func TestDocumentsAreCountedByType(t *testing.T) {
	harness, err := nacre.NewHarness(counter{}, "")
	if err != nil {
		t.Fatal(err)
	}
	counts := func(wanted string) {
		t.Helper()
		response, err := harness.Request("GET", "/", "")
		if err != nil || string(response.Body) != wanted {
			t.Errorf("%s, %v, not %s", response.Body, err, wanted)
		}
	}
	for id, body := range map[string]string{"a": `{"type":"hotel"}`, "b": `{"type":"hotel"}`, "c": "[]"} {
		if err := harness.Upsert(id, body); err != nil {
			t.Fatal(err)
		}
	}
	counts(`{"hotel":2,"none":1}`)
	if err := harness.Delete("c"); err != nil {
		t.Fatal(err)
	}
	counts(`{"hotel":2}`)
}
