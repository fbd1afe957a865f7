package main

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// Kinds of operations.
const (
	get     = "get"
	upsert  = "upsert"
	insert  = "insert"
	replace = "replace"
	remove  = "remove"
)

// Outcomes of operations.
const (
	succeeded = "ok"
	missing   = "missing"
	exists    = "exists"
	changed   = "changed"
	// It did not happen: for certain.
	refused = "refused"
	// It may have happened, or happen yet.
	unknown = "unknown"
)

// Operation is what one client did with one document. Values are unique, so that whoever knows a value's CAS names the
// value by it.
type Operation struct {
	Key    string `json:"key"`
	Client int    `json:"client"`
	Kind   string `json:"kind"`
	// What is written; what was read.
	Value string `json:"value,omitempty"`
	// What a replacement or removal takes to be there: by CAS.
	Expected string `json:"expected,omitempty"`
	Outcome  string `json:"outcome"`
	// How the SDK names its error.
	Error string `json:"error,omitempty"`
	// What it says of it, with all that it knows.
	said string
	// Nanoseconds since the program began, by its monotonic clock.
	Begun int64 `json:"begun"`
	Ended int64 `json:"ended"`
}

// The register: its state is the value, or nothing where there is no document.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		return input.(*Operation).step(state.(string))
	},
	DescribeOperation: func(input, _ any) string {
		o := input.(*Operation)
		return fmt.Sprintf("%s %s (%s): %s", o.Kind, o.Value, o.Expected, o.Outcome)
	},
}

// Whether the register could have said that in this state, and its state afterwards.
func (o *Operation) step(state string) (bool, any) {
	there := state != ""
	as := there && (o.Expected == "" || o.Expected == state)
	happens := false
	after := o.Value
	switch o.Kind {
	case get:
		return o.Value == state, state
	case upsert:
		happens = true
	case insert:
		happens = !there
	case replace:
		happens = as
	case remove:
		happens, after = as, ""
	}
	switch o.Outcome {
	case succeeded:
		return happens, after
	case missing:
		return !there, state
	case exists:
		return there, state
	case changed:
		return there && !as, state
	}
	// Nobody knows.
	if happens {
		return true, after
	}
	return true, state
}

// Whether a register could have said all that; if not, a page that shows it is written.
func linearizable(operations []*Operation, page string) bool {
	var latest int64
	for _, o := range operations {
		latest = max(latest, o.Ended)
	}
	var history []porcupine.Operation
	for _, o := range operations {
		switch {
		case o.Outcome == refused || o.Kind == get && o.Outcome == unknown:
			continue
		case o.Outcome == unknown:
			history = append(history, porcupine.Operation{ClientId: o.Client, Input: o, Call: o.Begun, Return: latest + 1})
		default:
			history = append(history, porcupine.Operation{ClientId: o.Client, Input: o, Call: o.Begun, Return: o.Ended})
		}
	}
	result, info := porcupine.CheckOperationsVerbose(register, history, patience)
	if result == porcupine.Ok {
		return true
	}
	if page != "" {
		_ = porcupine.VisualizePath(register, info, page)
	}
	return false
}
