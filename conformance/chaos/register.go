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
	// It certainly did not happen.
	refused = "refused"
	// It may have happened, or may still happen.
	unknown = "unknown"
)

// Operation is an operation of one client on one document. Values are unique, so that a CAS identifies its value.
type Operation struct {
	Key    string `json:"key"`
	Client int    `json:"client"`
	Kind   string `json:"kind"`
	// The written value, or the value read.
	Value string `json:"value,omitempty"`
	// The value that a replacement or removal expects, by its CAS.
	Expected string `json:"expected,omitempty"`
	Outcome  string `json:"outcome"`
	// The SDK's name of the error.
	Error string `json:"error,omitempty"`
	// The SDK's complete message.
	said string
	// Nanoseconds since the start of the program, by its monotonic clock.
	Begun int64 `json:"begun"`
	Ended int64 `json:"ended"`
}

// register is the model: its state is the value, or empty if there is no document.
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

// step reports whether the operation is possible in this state, and returns the state afterwards.
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
	// The outcome is unknown.
	if happens {
		return true, after
	}
	return true, state
}

// linearizable reports whether a register could have answered all operations; if not, it writes a page that shows
// them.
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
