// Does what documents and requests say.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"nacre"
)

type trial struct{ greeting string }

func init() { nacre.Run(&trial{}) }

func main() {}

func (self *trial) Init(config []byte) error {
	if strings.Contains(string(config), "refused") {
		return nacre.Reject("the configuration %s is refused", config)
	}
	self.greeting = "hello"
	return nil
}

var grown [][]byte

func (*trial) OnUpdate(event nacre.Event) error {
	nacre.State.Put("seen/"+event.ID(), event.Body)
	var document struct{ Act string }
	if err := event.JSON(&document); err != nil {
		return err
	}
	switch document.Act {
	case "fail":
		return errors.New("it fails as it is told")
	case "panic":
		var none map[string]int
		none["a"] = 1
	case "loop":
		for {
		}
	case "grow":
		for {
			grown = append(grown, make([]byte, 1<<20))
		}
	case "timer":
		nacre.Timers.Set("timer/"+event.ID(), event.Now.Add(50*time.Millisecond), event.Key)
	case "sleep":
		before := time.Now()
		time.Sleep(time.Hour)
		nacre.State.Put("slept", []byte(time.Since(before).Round(time.Hour).String()))
	case "goroutine":
		go func() { panic("nobody recovers: \xff") }()
		time.Sleep(time.Second)
	case "add":
		_, err := count("sum/" + event.ID())
		return err
	case "again":
		tries, err := count("tries/" + event.ID())
		if err == nil && tries < 2 {
			err = nacre.Retry("once more")
		}
		return err
	case "old":
		if event.Previous != nil {
			nacre.State.Put("old/"+event.ID(), event.Previous.Body)
		}
	case "key":
		nacre.State.Put("", nil)
	case "large":
		nacre.State.Put("large", make([]byte, 1<<20))
	case "log":
		nacre.Log.Warn("%s came in vBucket %d\xff", event.ID(), event.VB)
		nacre.Metrics.Add("came", 2)
		fmt.Println("nobody reads this")
		log.Printf("%s by the standard package", event.ID())
		slog.Warn("structured", "n", 1)
	case "exit":
		log.Fatalf("%s cannot be done", event.ID())
	}
	return nil
}

// count adds to a counter beside the documents.
func count(key string) (uint64, error) {
	first := uint64(1)
	counted, err := nacre.KV.Counter("_default._default", key, 1, &first, 0)
	return counted.Value, err
}

func (*trial) OnDelete(event nacre.Event) error {
	nacre.State.Delete("seen/" + event.ID())
	return nil
}

func (*trial) OnTimer(now time.Time, timer nacre.Timer) error {
	nacre.State.Put(timer.Name, fmt.Append(nil, string(timer.Payload), " late: ", now.Before(timer.Due)))
	return nil
}

func (*trial) Rollback(vb uint16, seqno uint64) (uint64, bool, error) {
	if vb == 7 {
		return 0, false, nacre.Reject("not vBucket 7 to %d", seqno)
	}
	for entry := range nacre.State.ScanPrefix("seen/") {
		nacre.State.Delete(entry.Key)
	}
	return 0, true, nil
}

func (self *trial) Handle(request nacre.Request) (nacre.Response, error) {
	switch request.Path {
	case "/panic":
		panic("as it is told")
	case "/loop":
		for {
		}
	case "/garbage":
		return nacre.JSON(200, litter())
	case "/deadlock":
		select {}
	case "/size":
		return nacre.JSON(200, len(request.Body))
	case "/gather":
		return nacre.JSON(200, gather())
	case "/leave":
		go func() {
			for {
				nacre.State.Get("none")
				runtime.Gosched()
			}
		}()
		return nacre.Response{}, nil
	case "/never":
		return nacre.Response{}, nacre.Reject("never")
	case "/pieces":
		return nacre.Response{Body: []byte("a"), Cursor: []byte("bcd")}, nil
	case "/echo":
		header := ""
		for _, one := range request.Headers {
			if one.Name == "nacre-user" {
				header = one.Value
			}
		}
		arguments := request.Arguments()
		return nacre.JSON(201, []string{self.greeting, request.Method, arguments.Get("a"), header, string(request.Body)})
	case "/count":
		count := 0
		for range nacre.State.ScanPrefix("seen/") {
			count++
		}
		response, err := nacre.JSON(200, count)
		response.Headers = append(response.Headers, nacre.Header{Name: "counted", Value: request.Path})
		return response, err
	case "/kv":
		return documents()
	}
	entries := map[string]string{}
	for entry := range nacre.State.Scan(nacre.Scan{Start: request.Path[1:]}) {
		entries[entry.Key] = string(entry.Value)
	}
	return nacre.JSON(200, entries)
}

// litter makes 20 MiB of garbage where 34 of 64 are in use, and gives how many bytes were made.
func litter() (total int) {
	if grown == nil {
		grown = [][]byte{make([]byte, 34<<20)}
	}
	for range 20 {
		one := make([]byte, 1<<20)
		nacre.State.Get(string(one[:1]))
		total += len(one)
	}
	return total
}

// gather reads a large value at the same time in several goroutines, and gives how many bytes there were.
func gather() (total int) {
	var all sync.WaitGroup
	var sizes [8]int
	for index := range sizes {
		all.Add(1)
		go func() {
			defer all.Done()
			value, _ := nacre.State.Get("large")
			sizes[index] = len(value)
		}()
	}
	all.Wait()
	for _, size := range sizes {
		total += size
	}
	return total
}

func (*trial) More(cursor []byte) (nacre.Chunk, error) {
	chunk := nacre.Chunk{Body: cursor[:1]}
	if len(cursor) > 1 {
		chunk.Cursor = cursor[1:]
	}
	return chunk, nil
}

// Merge adds up what several nodes have counted.
func (*trial) Merge(request nacre.Request, partials []nacre.Response) (nacre.Response, error) {
	sum := 0
	for _, partial := range partials {
		var count int
		if err := json.Unmarshal(partial.Body, &count); err != nil {
			return nacre.Response{}, err
		}
		counted := nacre.Header{Name: "counted", Value: request.Path}
		if partial.Status != 200 || partial.Cursor != nil || !slices.Contains(partial.Headers, counted) {
			return nacre.Response{}, fmt.Errorf("%v was not counted for %s", partial, request.Path)
		}
		sum += count
	}
	return nacre.JSON(200, []int{len(partials), sum})
}

// documents does everything once that can be done to documents.
func documents() (nacre.Response, error) {
	const space = "_default._default"
	told := []any{}
	tell := func(what any, err error) {
		if err != nil {
			what = err.Error()
		}
		told = append(told, what)
	}
	body := func(key string) {
		document, err := nacre.KV.Get(space, key)
		tell(string(document.Body), err)
	}
	made := func(_ uint64, err error) { tell("done", err) }
	first, err := nacre.KV.Insert(space, "kv/a", nacre.Content{Body: []byte(`{"n":1}`)})
	made(first, err)
	made(nacre.KV.Insert(space, "kv/a", nacre.Content{Body: []byte("1")}))
	made(nacre.KV.Upsert(space, "kv/b", nacre.Content{Body: []byte("[2]")}))
	made(nacre.KV.Replace(space, "kv/a", nacre.Content{Body: []byte("1")}, first+1))
	made(nacre.KV.Replace(space, "kv/a", nacre.Content{Body: []byte(`{"n":2}`)}, first))
	made(nacre.KV.MutateIn(space, "kv/a", []nacre.Change{
		{Operation: nacre.PathUpsert, Path: "m.deep", Value: "x"},
		{Operation: nacre.PathRemove, Path: "n"},
	}, 0))
	made(nacre.KV.MutateIn(space, "kv/a", []nacre.Change{{Operation: nacre.PathRemove, Path: "n"}}, 0))
	body("kv/a")
	values, err := nacre.KV.LookupIn(space, "kv/a", []string{"m.deep", "none"}, false)
	tell(values, err)
	found, err := nacre.KV.GetMany(space, []string{"kv/b", "kv/none"})
	tell(err == nil && string(found[0].Body) == "[2]" && found[0].IsJSON && found[1] == nil, err)
	ten := uint64(10)
	counted, err := nacre.KV.Counter(space, "kv/c", 1, &ten, 0)
	tell(counted.Value, err)
	counted, err = nacre.KV.Counter(space, "kv/c", -3, nil, 0)
	tell(counted.Value, err)
	_, err = nacre.KV.Counter(space, "kv/none", 1, nil, 0)
	tell(errors.Is(err, nacre.ErrNotFound), nil)
	made(nacre.KV.Touch(space, "kv/b", 1000))
	made(nacre.KV.Remove(space, "kv/b", 0))
	body("kv/b")
	_, err = nacre.KV.Get("other.one", "kv/a")
	tell(errors.Is(err, nacre.ErrDenied), nil)
	_, err = nacre.HTTP.Send("GET", "http://127.0.0.1:1/", nil, nil)
	tell(errors.Is(err, nacre.ErrFailed), nil)
	_, err = nacre.HTTP.Send("GET", "http://elsewhere/", []nacre.Header{{Name: "a", Value: "b"}}, []byte("x"))
	tell(errors.Is(err, nacre.ErrDenied), nil)
	return nacre.JSON(200, told)
}
