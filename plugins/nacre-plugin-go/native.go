//go:build !wasip1

package nacre

import (
	"encoding/json"
	"maps"
	"slices"
)

// What takes the place of the host outside of the sandbox: state and timers in memory, and nothing else.
var (
	nativeState  = map[string][]byte{}
	nativeTimers = map[string]Timer{}
)

func stateGet(key string) ([]byte, bool) {
	value, found := nativeState[key]
	return slices.Clone(value), found
}

func statePut(key string, value []byte) { nativeState[key] = append([]byte{}, value...) }

func stateDelete(key string) { delete(nativeState, key) }

func stateScan(start, end string, limit uint32, reverse bool) []Entry {
	keys := slices.Sorted(maps.Keys(nativeState))
	keys = slices.DeleteFunc(keys, func(key string) bool { return key < start || end != "" && key >= end })
	if reverse {
		slices.Reverse(keys)
	}
	entries := make([]Entry, 0, len(keys))
	for _, key := range keys[:min(len(keys), int(limit))] {
		entries = append(entries, Entry{key, slices.Clone(nativeState[key])})
	}
	return entries
}

func logWrite(uint32, string) {}

func metricsAdd(string, float64) {}

func metricsSet(string, float64) {}

func timerSet(name string, due uint64, payload []byte) {
	nativeTimers[name] = Timer{name, liftTime(due), slices.Clone(payload)}
}

func timerCancel(name string) { delete(nativeTimers, name) }

func timerIsSet(name string) bool {
	_, found := nativeTimers[name]
	return found
}

func turnBegin(uint32) {}

var errOutside = &refusal{ErrDenied, "there is no host outside of the sandbox"}

func httpSend(string, string, []Header, []byte) (Response, error) { return Response{}, errOutside }

func kvGet(string, string) (Document, error) { return Document{}, errOutside }

func kvGetMany(string, []string) ([]*Document, error) { return nil, errOutside }

func kvInsert(string, string, Content) (uint64, error) { return 0, errOutside }

func kvUpsert(string, string, Content) (uint64, error) { return 0, errOutside }

func kvReplace(string, string, Content, uint64) (uint64, error) { return 0, errOutside }

func kvRemove(string, string, uint64) (uint64, error) { return 0, errOutside }

func kvCounter(string, string, int64, *uint64, uint32) (Counted, error) { return Counted{}, errOutside }

func kvTouch(string, string, uint32) (uint64, error) { return 0, errOutside }

func kvLookupIn(string, string, []string, bool) ([]json.RawMessage, error) { return nil, errOutside }

func kvMutateIn(string, string, []Change, [][]byte, uint64) (uint64, error) { return 0, errOutside }
