package nacre

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// example is a buffer of those that host and guest kits test.
func example(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("../wit/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var buffer []byte
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || len(line) < 5 {
			continue
		}
		// An offset, bytes by two digits, and behind at least two blanks what they are.
		digits, _, _ := strings.Cut(line[5:], "  ")
		bytes, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
		if err != nil {
			t.Fatalf("%s: %q: %v", name, line, err)
		}
		buffer = append(buffer, bytes...)
	}
	return buffer
}

func decoded(t *testing.T, name string) Events {
	t.Helper()
	events, err := DecodeEvents(example(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func TestTheExampleIsDecoded(t *testing.T) {
	events := decoded(t, "event-buffer.example")
	if events.Len() != 2 || events.Now().UnixMicro() != 1_700_000_000_000_000 {
		t.Fatalf("%d events at %v", events.Len(), events.Now())
	}
	first := events.At(0)
	is(t, "seqno", first.Seqno, 7)
	is(t, "cas", first.CAS, 65536)
	is(t, "rev", first.Rev, 3)
	is(t, "flags", first.Flags, 0x02000006)
	is(t, "expiry", first.Expiry, 0)
	is(t, "collection", first.Collection, 8)
	is(t, "vb", first.VB, 526)
	is(t, "kind", first.Kind, Upsert)
	is(t, "datatype", first.Datatype, 5)
	is(t, "id", first.ID(), "k1")
	is(t, "extended attributes", len(first.Xattrs), 6)
	is(t, "body", len(first.Body), 7)
	is(t, "now", first.Now, events.Now())
	var value any
	if !first.IsJSON() || first.JSON(&value) != nil {
		t.Errorf("%q is no JSON", first.Body)
	}
	if first.Previous != nil {
		t.Error("a version before that is not there")
	}
	second := events.At(1)
	is(t, "kind of the second", second.Kind, Delete)
	is(t, "body of the second", len(second.Body), 0)
}

func TestAVersionBeforeIsDecoded(t *testing.T) {
	previous := decoded(t, "event-buffer-previous.example").At(1).Previous
	if previous == nil {
		t.Fatal("there is none")
	}
	is(t, "seqno", previous.Seqno, 1)
	is(t, "cas", previous.CAS, 65536)
	is(t, "kind", previous.Kind, Upsert)
	is(t, "body", string(previous.Body), "{}")
}

func TestABufferThatEndsEarlyIsRefused(t *testing.T) {
	whole := example(t, "event-buffer-previous.example")
	for size := range whole {
		if _, err := DecodeEvents(whole[:size]); err == nil {
			t.Errorf("%d of %d bytes were taken", size, len(whole))
		}
	}
}

// What is inside the arena by its offsets can be read; a panic would fail the test.
func TestNoByteOfABufferLeadsOutside(t *testing.T) {
	whole := example(t, "event-buffer-previous.example")
	for at := range whole {
		for _, value := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			changed := append([]byte{}, whole...)
			changed[at] = value
			events, err := DecodeEvents(changed)
			if err != nil {
				continue
			}
			for range events.All() {
			}
		}
	}
}

func is[T comparable](t *testing.T, what string, found, wanted T) {
	t.Helper()
	if found != wanted {
		t.Errorf("%s: %v, not %v", what, found, wanted)
	}
}
