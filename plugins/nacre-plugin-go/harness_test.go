//go:build !wasip1

package nacre

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestEachHarnessHasAStateOfItsOwn(t *testing.T) {
	first, second := deployed(t, tester{}), deployed(t, tester{})
	is(t, "error", first.Upsert("a", "1"), nil)
	is(t, "error", second.Upsert("b", "2"), nil)
	is(t, "first", fmt.Sprint(first.State()), "map[doc/a:1 last:a]")
	is(t, "second", fmt.Sprint(second.State()), "map[doc/b:2 last:b]")
}

func TestTimersFireAtTheirTimes(t *testing.T) {
	var fired []string
	harness := deployed(t, fires(func(now time.Time, timer Timer) error {
		fired = append(fired, fmt.Sprint(timer.Name, now.Sub(timer.Due)))
		if timer.Name == "a" {
			Timers.Set("again", now.Add(time.Minute), nil)
		}
		return nil
	}))
	begin := harness.Now()
	Timers.Set("late", begin.Add(time.Hour), nil)
	Timers.Set("b", begin.Add(time.Second), nil)
	Timers.Set("a", begin.Add(time.Second), nil)
	is(t, "error", harness.Advance(2*time.Minute), nil)
	is(t, "fired", fmt.Sprint(fired), "[a0s b0s again0s]")
	is(t, "now", harness.Now().Sub(begin), 2*time.Minute)
	is(t, "left", len(harness.Timers()), 1)
}

func TestAHarnessHasDocuments(t *testing.T) {
	harness := deployed(t, tester{})
	harness.Store("a.b", "k", `{"n":1}`)
	first, err := KV.Get("a.b", "k")
	is(t, "read", fmt.Sprint(string(first.Body), first.IsJSON, err), `{"n":1}true <nil>`)
	_, err = KV.Insert("a.b", "k", Content{})
	is(t, "inserted", errors.Is(err, ErrExists), true)
	_, err = KV.Replace("a.b", "k", Content{}, first.CAS+7)
	is(t, "replaced", errors.Is(err, ErrCASMismatch), true)
	_, err = KV.Touch("a.b", "k", 60)
	is(t, "touched", err, nil)
	found, err := KV.GetMany("a.b", []string{"k", "none"})
	is(t, "many", fmt.Sprint(found[0] != nil, found[1] == nil, err), "true true <nil>")
	many, err := KV.GetMany("a.b", append(make([]string, 2*getManyMax), "k"))
	is(t, "more than at once", fmt.Sprint(len(many), many[2*getManyMax] != nil, err), fmt.Sprint(2*getManyMax+1, " true <nil>"))
	is(t, "advanced", harness.Advance(time.Hour), nil)
	_, err = KV.Remove("a.b", "k", 0)
	is(t, "expired", errors.Is(err, ErrNotFound), true)
	ten := uint64(10)
	for _, one := range []struct {
		delta  int64
		wanted uint64
	}{{1, 10}, {5, 15}, {-7, 8}, {-9, 0}} {
		counted, err := KV.Counter("", "c", one.delta, &ten, 0)
		is(t, "counted", counted.Value, one.wanted)
		is(t, "error", err, nil)
	}
	_, err = HTTP.Send("GET", "https://a/", nil, nil)
	is(t, "sent", errors.Is(err, ErrDenied), true)
}

func TestAHarnessChangesPartsOfDocuments(t *testing.T) {
	harness := deployed(t, tester{})
	for _, one := range []struct {
		change Change
		wanted string
	}{
		{Change{Operation: PathUpsert, Path: "m.deep", Value: "x"}, `{"a":[1,2],"m":{"deep":"x"},"n":7}`},
		{Change{Operation: PathInsert, Path: "n", Value: 1}, "there is a value"},
		{Change{Operation: PathReplace, Path: "n", Value: true}, `{"a":[1,2],"n":true}`},
		{Change{Operation: PathReplace, Path: "none", Value: 1}, "there is nothing"},
		{Change{Operation: PathRemove, Path: "a[-1]"}, `{"a":[1],"n":7}`},
		{Change{Operation: PathRemove, Path: "a.b"}, "there is nothing"},
		{Change{Operation: ArrayAppend, Path: "a", Value: 3}, `{"a":[1,2,3],"n":7}`},
		{Change{Operation: ArrayPrepend, Path: "`b`", Value: 3}, `{"a":[1,2],"b":[3],"n":7}`},
		{Change{Operation: ArrayInsert, Path: "a[1]", Value: 3}, `{"a":[1,3,2],"n":7}`},
		{Change{Operation: ArrayInsert, Path: "a[2]", Value: 3}, `{"a":[1,2,3],"n":7}`},
		{Change{Operation: ArrayAddUnique, Path: "a", Value: 2}, "there is such an element"},
		{Change{Operation: PathCounter, Path: "n", Value: -9}, `{"a":[1,2],"n":-2}`},
		{Change{Operation: PathCounter, Path: "a", Value: 1}, "there is no number"},
		{Change{Operation: ArrayAppend, Path: "n", Value: 1}, "there is no array"},
	} {
		harness.Store("", "k", `{"n":7,"a":[1,2]}`)
		_, err := KV.MutateIn("", "k", []Change{one.change}, 0)
		told := string(harness.Documents("")["k"].Body)
		if err != nil {
			is(t, "error", errors.Is(err, ErrPath), true)
			told = fmt.Sprintf("a part of the mutation cannot be done: %s at %q", one.wanted, one.change.Path)
			is(t, "message", err.Error(), told)
			continue
		}
		is(t, fmt.Sprint(one.change), told, one.wanted)
	}
	values, err := KV.LookupIn("", "k", []string{"a[1]", "a[2]", "n", "n.x", "a["}, false)
	is(t, "values", fmt.Sprintf("%s %v", values, err), "[2  7  ] <nil>")
}
