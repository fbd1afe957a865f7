package nacre

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
)

// The number of entries that are fetched at a time.
const scanEntries = 256

// The maximum length of a key.
const keyBytesMax = 64 << 10

// State is the capability `state`: the plugin's own ordered key space.
//
// Keys have 1 to 65,536 bytes and are compared as bytes; storing at another key panics. Changes become visible to others when
// the call of the host succeeds. Handle, More and Merge read the last commit; writing ends their call.
var State stateCapability

type stateCapability struct{}

// Entry is an entry of the state.
type Entry struct {
	// Key is the key.
	Key string
	// Value is the value.
	Value []byte
}

// Scan describes the range and the order of a scan of [State].
type Scan struct {
	// Start is the first key of the range.
	Start string
	// End is the first key after the range; empty for no bound.
	End string
	// Limit is the maximum number of entries; 0 for no bound.
	Limit int
	// Reverse returns the entries in descending order, from the end of the range.
	Reverse bool
}

// Get returns the value at key, and whether there is such an entry.
func (stateCapability) Get(key string) ([]byte, bool) { return stateGet(key) }

// GetJSON parses the value at key into target, and returns whether there is such an entry. It fails if the value is not JSON
// or not of that type.
func (stateCapability) GetJSON(key string, target any) (bool, error) {
	value, found := stateGet(key)
	if !found {
		return false, nil
	}
	if err := json.Unmarshal(value, target); err != nil {
		return true, fmt.Errorf("the state at %q: %w", key, err)
	}
	return true, nil
}

// Put stores value at key and replaces an existing value.
func (stateCapability) Put(key string, value []byte) {
	// The host would end the call.
	if key == "" || len(key) > keyBytesMax {
		panic(fmt.Sprintf("a key of the state has 1 to %d bytes, not %d", keyBytesMax, len(key)))
	}
	remember(key)
	statePut(key, value)
}

// PutJSON stores value at key as JSON. It fails if value cannot be encoded as JSON.
func (stateCapability) PutJSON(key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	State.Put(key, text)
	return nil
}

// Delete removes the entry at key, if there is one.
func (stateCapability) Delete(key string) {
	remember(key)
	stateDelete(key)
}

// Scan iterates over the entries of a range. It fetches them on demand: writes during the scan are seen if they are ahead of it.
func (stateCapability) Scan(scan Scan) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		start, end, left := scan.Start, scan.End, scan.Limit
		if left <= 0 {
			left = math.MaxInt
		}
		for left > 0 {
			page := stateScan(start, end, uint32(min(left, scanEntries)), scan.Reverse)
			for _, entry := range page {
				if !yield(entry) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
			left -= len(page)
			last := page[len(page)-1].Key
			if scan.Reverse {
				end = last
			} else {
				start = last + "\x00"
			}
		}
	}
}

// ScanPrefix iterates over the entries whose keys start with prefix, in ascending order, as Scan does.
func (stateCapability) ScanPrefix(prefix string) iter.Seq[Entry] {
	return State.Scan(Scan{Start: prefix, End: Successor(prefix)})
}

// Successor returns the smallest key above all that start with prefix; empty if no key can follow them.
func Successor(prefix string) string {
	for last := len(prefix) - 1; last >= 0; last-- {
		if prefix[last] != 0xff {
			return prefix[:last] + string([]byte{prefix[last] + 1})
		}
	}
	return ""
}

// remember keeps the value at key, to restore it if the current document fails. The functions that undo are created here, so
// that a plugin that does not write does not import this capability.
func remember(key string) {
	if isRemembered(key) {
		return
	}
	before, found := stateGet(key)
	working.Lock()
	defer working.Unlock()
	// Another goroutine may have run meanwhile.
	if work == nil || work.remembered[key] {
		return
	}
	if work.remembered == nil {
		work.remembered = map[string]bool{}
	}
	work.remembered[key] = true
	work.undo = append(work.undo, func() {
		if found {
			statePut(key, before)
		} else {
			stateDelete(key)
		}
	})
}

// isRemembered reports whether there is nothing to remember.
func isRemembered(key string) bool {
	working.Lock()
	defer working.Unlock()
	return work == nil || work.remembered[key]
}
