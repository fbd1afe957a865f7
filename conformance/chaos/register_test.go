package main

import "testing"

// Operations of one document, one per line: start, end, and operation.
func TestWhatARegisterSaysAndWhatNot(t *testing.T) {
	w := func(begun, ended int64, kind, value, outcome string) *Operation {
		return &Operation{Kind: kind, Value: value, Outcome: outcome, Begun: begun, Ended: ended}
	}
	if1 := func(o *Operation) *Operation { o.Expected = "1"; return o }
	for name, c := range map[string]struct {
		holds bool
		seen  []*Operation
	}{
		"the last write is read":         {true, []*Operation{w(0, 1, upsert, "1", succeeded), w(2, 3, get, "1", succeeded)}},
		"a lost write":                   {false, []*Operation{w(0, 1, upsert, "1", succeeded), w(2, 3, get, "", missing)}},
		"an old value":                   {false, []*Operation{w(0, 1, upsert, "1", succeeded), w(2, 3, upsert, "2", succeeded), w(4, 5, get, "1", succeeded)}},
		"back and forth":                 {false, []*Operation{w(0, 1, upsert, "1", succeeded), w(2, 9, upsert, "2", succeeded), w(3, 4, get, "2", succeeded), w(5, 6, get, "1", succeeded)}},
		"unknown, later seen":            {true, []*Operation{w(0, 1, upsert, "1", succeeded), w(2, 3, upsert, "2", unknown), w(4, 5, get, "1", succeeded), w(6, 7, get, "2", succeeded)}},
		"unknown, never seen":            {true, []*Operation{w(0, 1, upsert, "1", succeeded), w(2, 3, upsert, "2", unknown), w(4, 5, get, "1", succeeded)}},
		"refused, but seen":              {false, []*Operation{w(0, 1, upsert, "1", succeeded), w(2, 3, upsert, "2", refused), w(4, 5, get, "2", succeeded)}},
		"two inserts":                    {false, []*Operation{w(0, 1, insert, "1", succeeded), w(2, 3, insert, "2", succeeded)}},
		"an insert into what is there":   {true, []*Operation{w(0, 1, insert, "1", succeeded), w(2, 3, insert, "2", exists)}},
		"a removal":                      {true, []*Operation{w(0, 1, upsert, "1", succeeded), w(2, 3, remove, "", succeeded), w(4, 5, get, "", missing)}},
		"two replacements of one value":  {false, []*Operation{w(0, 1, upsert, "1", succeeded), if1(w(2, 5, replace, "2", succeeded)), if1(w(2, 5, replace, "3", succeeded))}},
		"a CAS that should have matched": {false, []*Operation{w(0, 1, upsert, "1", succeeded), if1(w(2, 3, replace, "2", changed))}},
	} {
		if linearizable(c.seen, "") != c.holds {
			t.Error(name)
		}
	}
}
