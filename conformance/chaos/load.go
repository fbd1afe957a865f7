package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/couchbase/gocb/v2"
)

const (
	// Clients of a document that write, and those that only read, so that readers never wait for a write.
	writers = 2
	readers = 1
	// The maximum pause of a client between two operations.
	pauseMax = 100 * time.Millisecond
	// Time limit for a check of one document.
	patience = time.Minute
	// Time limit until the documents can be read again.
	readPatience = 2 * time.Minute
	// Bytes after the value in a document, so that disks have work to do.
	ballast = 2048
)

// document returns the stored body: the value, and bytes that hardly compress.
func (c *client) document(value string) string {
	bytes := make([]byte, ballast/2)
	c.random.Read(bytes)
	return fmt.Sprintf("%s %x", value, bytes)
}

// valueOf returns the value in a stored body.
func valueOf(document string) string {
	value, _, _ := strings.Cut(document, " ")
	return value
}

var levels = map[string]gocb.DurabilityLevel{
	"majority":        gocb.DurabilityLevelMajority,
	"persistActive":   gocb.DurabilityLevelMajorityAndPersistOnMaster,
	"persistMajority": gocb.DurabilityLevelPersistToMajority,
	"none":            gocb.DurabilityLevelNone,
}

// Load contains the clients, and the state of the documents.
type Load struct {
	documents *gocb.Collection
	journal   *Journal
	seed      int64
	round     int
	keys      []string
	faults    []fault
	stop      context.CancelFunc
	clients   sync.WaitGroup
	// Operations left to check at the end, by document.
	left map[string][]*Operation
	sums Sums
}

type fault struct {
	name string
	keys []string
	at   int64
}

// Sums are the figures of a round, or of all rounds.
type Sums struct {
	Operations int `json:"operations"`
	Unknown    int `json:"unknown"`
	// Documents that are not linearizable.
	Violations []string `json:"violations"`
	// Lost acknowledged writes without durability.
	Lost   int            `json:"lost"`
	Errors map[string]int `json:"errors"`
	Gaps   []Gap          `json:"gaps"`
}

// Gap is the longest time in which a document affected by the fault could not be read, or written, in
// milliseconds.
type Gap struct {
	Fault  string  `json:"fault"`
	Reads  float64 `json:"reads"`
	Writes float64 `json:"writes"`
	// The same for all other documents.
	OtherReads  float64 `json:"other_reads"`
	OtherWrites float64 `json:"other_writes"`
}

func levelOf(key string) string { return strings.SplitN(key, "-", 2)[0] }

// begin starts the clients of new documents, and waits until each document was read and written.
func (l *Load) begin(keys []string) {
	l.round++
	l.keys, l.faults = keys, nil
	l.journal.operations = map[string][]*Operation{}
	if l.left == nil {
		l.left, l.sums.Errors = map[string][]*Operation{}, map[string]int{}
	}
	running, stop := context.WithCancel(context.Background())
	l.stop = stop
	var first sync.WaitGroup
	for place, key := range keys {
		count := writers
		if levelOf(key) == "none" {
			// A single writer, so that the last write is known.
			count = 1
		}
		for number := range count + readers {
			c := &client{
				load: l, key: key, number: number, reads: number >= count,
				random: rand.New(rand.NewSource(l.seed<<32 + int64(l.round)<<16 + int64(place)<<4 + int64(number))),
			}
			first.Add(1)
			l.clients.Add(1)
			go c.run(running, &first)
		}
	}
	first.Wait()
}

func (l *Load) fault(name string, keys []string) {
	if len(keys) == 0 {
		keys = l.keys
	}
	l.faults = append(l.faults, fault{name, keys, l.journal.now()})
}

// rest ends the round. For each document it keeps the value, and operations that may still take effect.
func (l *Load) rest() Sums {
	l.settle()
	l.stop()
	l.clients.Wait()
	end := l.journal.now()
	for _, key := range l.keys {
		l.readAgain(key)
	}
	round := Sums{Errors: map[string]int{}}
	for _, f := range l.faults {
		g := Gap{Fault: f.name}
		for _, key := range l.keys {
			if levelOf(key) == "none" {
				continue
			}
			reads, writes := &g.OtherReads, &g.OtherWrites
			if slices.Contains(f.keys, key) {
				reads, writes = &g.Reads, &g.Writes
			}
			operations := l.journal.operations[key]
			*reads = max(*reads, float64(gap(operations, isRead, f.at, end))/1e6)
			*writes = max(*writes, float64(gap(operations, isWrite, f.at, end))/1e6)
		}
		round.Gaps = append(round.Gaps, g)
	}
	for _, key := range l.keys {
		operations := l.journal.operations[key]
		for _, o := range operations {
			round.Operations++
			if o.Outcome == unknown {
				round.Unknown++
			}
			if o.Error != "" {
				round.Errors[o.Error]++
			}
		}
		last := operations[len(operations)-1]
		if levelOf(key) == "none" {
			round.Lost += lost(operations)
			continue
		}
		if !linearizable(operations, l.page(key)) {
			round.Violations = append(round.Violations, key)
		}
		left := []*Operation{last}
		for _, o := range operations {
			if o.Outcome == unknown && o.Kind != get {
				left = append(left, o)
			}
		}
		l.left[key] = left
	}
	l.sums.add(round)
	return round
}

// settle waits until each document was read and written after the call.
func (l *Load) settle() {
	begun := l.journal.now()
	for _, key := range l.keys {
		for !l.journal.has(key, isRead, begun) || !l.journal.has(key, isWrite, begun) {
			if l.journal.now()-begun > readPatience.Nanoseconds() {
				must(fmt.Errorf("%s is not served again: %s", key, l.journal.said(key)))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// end reads every document of every round again.
func (l *Load) end() Sums {
	l.journal.operations = map[string][]*Operation{}
	for key, left := range l.left {
		l.readAgain(key)
		// The last value must be one that was written.
		last := *left[0]
		last.Kind, last.Outcome = upsert, succeeded
		if last.Value == "" {
			last.Kind = remove
			last.Outcome = unknown
		}
		history := append([]*Operation{&last}, left[1:]...)
		for _, o := range left[1:] {
			o.Begun = max(o.Begun, last.Ended)
		}
		if !linearizable(append(history, l.journal.operations[key]...), l.page(key)) {
			l.sums.Violations = append(l.sums.Violations, key)
		}
	}
	return l.sums
}

// page returns the path of the page that shows a violation, next to the history.
func (l *Load) page(key string) string {
	if l.journal.file.Name() == "/dev/null" {
		return ""
	}
	return filepath.Join(filepath.Dir(l.journal.file.Name()), key+".html")
}

// readAgain reads a document after the repair.
func (l *Load) readAgain(key string) {
	c := &client{load: l, key: key, number: writers + readers}
	for begun := time.Now(); ; {
		if o := c.get(); o.Outcome != unknown {
			return
		}
		if time.Since(begun) > readPatience {
			must(fmt.Errorf("%s cannot be read", key))
		}
	}
}

// lost returns the number of acknowledged writes of the single writer that are newer than the last value
// read.
func lost(operations []*Operation) int {
	number := func(value string) int {
		n, _ := strconv.Atoi(value[strings.LastIndex(value, ".")+1:])
		return n
	}
	last, count := number(operations[len(operations)-1].Value), 0
	for _, o := range operations {
		if o.Kind != get && o.Outcome == succeeded && number(o.Value) > last {
			count++
		}
	}
	return count
}

func (s *Sums) add(round Sums) {
	s.Operations += round.Operations
	s.Unknown += round.Unknown
	s.Lost += round.Lost
	s.Violations = append(s.Violations, round.Violations...)
	s.Gaps = append(s.Gaps, round.Gaps...)
	for kind, count := range round.Errors {
		s.Errors[kind] += count
	}
}

// client is one client of one document.
type client struct {
	load    *Load
	key     string
	number  int
	reads   bool
	random  *rand.Rand
	written int
	// The last known value, and its CAS.
	value string
	cas   gocb.Cas
}

func (c *client) run(running context.Context, first *sync.WaitGroup) {
	defer c.load.clients.Done()
	begins := true
	for running.Err() == nil {
		var done *Operation
		if c.reads {
			done = c.get()
		} else {
			done = c.write(begins)
		}
		if begins && done.Outcome != unknown && done.Outcome != refused {
			begins = false
			first.Done()
		}
		select {
		case <-running.Done():
		case <-time.After(time.Duration(c.random.Int63n(int64(pauseMax)))):
		}
	}
	if begins {
		first.Done()
	}
}

func (c *client) get() *Operation {
	o := &Operation{Key: c.key, Client: c.number, Kind: get, Begun: c.load.journal.now()}
	found, err := c.load.documents.Get(c.key, nil)
	o.Ended = c.load.journal.now()
	if err == nil {
		var stored string
		must(found.Content(&stored))
		o.Value = valueOf(stored)
		c.value, c.cas = o.Value, found.Cas()
	}
	c.note(o, err)
	if o.Outcome == refused {
		o.Outcome = unknown
	}
	c.load.journal.write(o)
	return o
}

// write makes a random write. If certainly is set, it always writes.
func (c *client) write(certainly bool) *Operation {
	c.written++
	value := fmt.Sprintf("%s.%d.%d", c.key, c.number, c.written)
	o := &Operation{Key: c.key, Client: c.number, Kind: upsert, Value: value}
	level := levels[levelOf(c.key)]
	choice := c.random.Intn(10)
	switch {
	case certainly || level == gocb.DurabilityLevelNone || choice < 4:
	case choice < 7 && c.cas != 0:
		o.Kind, o.Expected = replace, c.value
	case choice < 8:
		o.Kind, o.Value = remove, ""
	case choice < 9:
		o.Kind = insert
	default:
		o.Kind = replace
	}
	o.Begun = c.load.journal.now()
	documents := c.load.documents
	var cas gocb.Cas
	if o.Expected != "" {
		cas = c.cas
	}
	var result *gocb.MutationResult
	var err error
	switch o.Kind {
	case upsert:
		result, err = documents.Upsert(c.key, c.document(o.Value), &gocb.UpsertOptions{DurabilityLevel: level})
	case insert:
		result, err = documents.Insert(c.key, c.document(o.Value), &gocb.InsertOptions{DurabilityLevel: level})
	case replace:
		result, err = documents.Replace(c.key, c.document(o.Value), &gocb.ReplaceOptions{Cas: cas, DurabilityLevel: level})
	case remove:
		result, err = documents.Remove(c.key, &gocb.RemoveOptions{DurabilityLevel: level})
	}
	o.Ended = c.load.journal.now()
	c.cas = 0
	if err == nil && o.Kind != remove {
		c.value, c.cas = o.Value, result.Cas()
	}
	c.note(o, err)
	c.load.journal.write(o)
	if o.Outcome == changed {
		// It first reads the current value, like an application.
		c.get()
	}
	return o
}

// kinds are the errors of the SDK with their outcome and their name; the first match is used.
var kinds = []struct {
	err     error
	name    string
	outcome string
}{
	{gocb.ErrDurableWriteReCommitInProgress, "durable write re-commit in progress", refused},
	{gocb.ErrDurableWriteInProgress, "durable write in progress", refused},
	{gocb.ErrDurabilityAmbiguous, "durability ambiguous", unknown},
	{gocb.ErrDurabilityImpossible, "durability impossible", refused},
	{gocb.ErrTemporaryFailure, "temporary failure", refused},
	{gocb.ErrUnambiguousTimeout, "unambiguous timeout", refused},
	{gocb.ErrAmbiguousTimeout, "ambiguous timeout", unknown},
	{gocb.ErrRequestCanceled, "request canceled", unknown},
	// The SDK does not send: too many requests have timed out.
	{gocb.ErrCircuitBreakerOpen, "circuit breaker open", refused},
	// The SDK's errors for a connection that ended while it waited for the answer, or sent the request.
	{io.EOF, "connection closed", unknown},
	{syscall.ECONNRESET, "connection closed", unknown},
	{syscall.EPIPE, "connection closed", unknown},
	{net.ErrClosed, "connection closed", unknown},
}

// note records the outcome of an operation.
func (c *client) note(o *Operation, err error) {
	switch {
	case err == nil:
		o.Outcome = succeeded
	case errors.Is(err, gocb.ErrDocumentNotFound):
		o.Outcome = missing
	case errors.Is(err, gocb.ErrDocumentExists):
		o.Outcome = exists
	case errors.Is(err, gocb.ErrCasMismatch):
		o.Outcome = changed
	default:
		o.said = err.Error()
		for _, kind := range kinds {
			if errors.Is(err, kind.err) {
				o.Outcome, o.Error = kind.outcome, kind.name
				return
			}
		}
		// An unexpected error, counted by its message.
		o.Outcome, o.Error = unknown, "unexpected: "+err.Error()
	}
}
