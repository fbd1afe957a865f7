package main

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"
)

// Journal contains every operation, in the order in which they ended.
type Journal struct {
	begun time.Time
	file  *os.File
	out   *bufio.Writer
	mutex sync.Mutex
	// The operations of this round, by document.
	operations map[string][]*Operation
}

func newJournal(path string) (*Journal, error) {
	if path == "" {
		path = os.DevNull
	}
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &Journal{begun: time.Now(), file: file, out: bufio.NewWriterSize(file, 1<<16)}, nil
}

func (j *Journal) close() error {
	if err := j.out.Flush(); err != nil {
		return err
	}
	return j.file.Close()
}

func (j *Journal) now() int64 { return time.Since(j.begun).Nanoseconds() }

func (j *Journal) write(o *Operation) {
	line, err := json.Marshal(o)
	must(err)
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.operations[o.Key] = append(j.operations[o.Key], o)
	_, err = j.out.Write(append(line, '\n'))
	must(err)
}

// has reports whether a wanted operation began since the given time, and has ended.
func (j *Journal) has(key string, wanted func(*Operation) bool, since int64) bool {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	operations := j.operations[key]
	for place := len(operations) - 1; place >= 0 && operations[place].Ended >= since; place-- {
		if operations[place].Begun >= since && wanted(operations[place]) {
			return true
		}
	}
	return false
}

// said returns the SDK's message about the last failed operation, with the node's answers meanwhile.
func (j *Journal) said(key string) string {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	for _, o := range slices.Backward(j.operations[key]) {
		if o.said != "" {
			return o.said
		}
	}
	return "nothing has failed"
}

func isRead(o *Operation) bool {
	return o.Kind == get && (o.Outcome == succeeded || o.Outcome == missing)
}

func isWrite(o *Operation) bool { return o.Kind != get && o.Outcome == succeeded }

// gap returns the longest time, from the given instant, without a successful wanted operation on the
// document.
func gap(operations []*Operation, wanted func(*Operation) bool, from, to int64) int64 {
	var longest int64
	last := from
	for _, o := range operations {
		if !wanted(o) || o.Ended < from {
			continue
		}
		longest = max(longest, o.Ended-last)
		last = o.Ended
	}
	return max(longest, to-last)
}
