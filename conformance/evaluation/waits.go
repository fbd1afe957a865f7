package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/couchbase/gocb/v2"
)

const (
	// Few, so that each of them is requested every few milliseconds.
	waitDocuments = 100
	// One operation in this many is a write.
	waitWrites = 4
	// The interval at which operations start.
	waitTick = time.Millisecond
)

// Waits contains the latencies of a phase's operations, from their scheduled start, in milliseconds.
type Waits struct {
	Operations int     `json:"operations"`
	Failed     int     `json:"failed"`
	P50        float64 `json:"p50"`
	P99        float64 `json:"p99"`
	// The longest wait for each of the documents.
	Longest []float64 `json:"longest"`
	// The waits of each document.
	all [waitDocuments][]float64
}

// waits starts operations at a steady rate, regardless of pending ones, until the input ends.
func waits(collection *gocb.Collection, rate int) []*Waits {
	for number := range waitDocuments {
		_, err := collection.Upsert(key(number), document(number, 0), nil)
		must(err)
	}
	var mutex sync.Mutex
	phases := []*Waits{{}}
	end := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			mutex.Lock()
			phases = append(phases, &Waits{})
			mutex.Unlock()
		}
		close(end)
	}()
	fmt.Println("begun")
	var running sync.WaitGroup
	begin := func(number int, at time.Time, phase *Waits) {
		defer running.Done()
		place := number % waitDocuments
		var err error
		// Each document is read and written in turn.
		if number/waitDocuments%waitWrites == 0 {
			_, err = collection.Upsert(key(place), document(place, number), nil)
		} else {
			_, err = collection.Get(key(place), nil)
		}
		took := float64(time.Since(at).Microseconds()) / 1000
		mutex.Lock()
		defer mutex.Unlock()
		phase.all[place] = append(phase.all[place], took)
		if err != nil {
			phase.Failed++
		}
	}
	begun, number := time.Now(), 0
	for ticks := time.NewTicker(waitTick); ; {
		select {
		case <-end:
			running.Wait()
			for _, phase := range phases {
				phase.sum()
			}
			return phases
		case <-ticks.C:
			mutex.Lock()
			phase := phases[len(phases)-1]
			mutex.Unlock()
			for ; number < int(time.Since(begun).Seconds()*float64(rate)); number++ {
				running.Add(1)
				go begin(number, begun.Add(time.Duration(number)*time.Second/time.Duration(rate)), phase)
			}
		}
	}
}

func (w *Waits) sum() {
	all := slices.Concat(w.all[:]...)
	slices.Sort(all)
	w.Operations = len(all)
	if len(all) > 0 {
		w.P50, w.P99 = all[len(all)/2], all[len(all)*99/100]
	}
	for _, waits := range w.all {
		if len(waits) > 0 {
			w.Longest = append(w.Longest, slices.Max(waits))
		}
	}
}
