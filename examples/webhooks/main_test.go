package main

import (
	"fmt"
	"testing"
	"time"

	"nacre"
)

// receiver is a server that may be down, and records what it receives.
type receiver struct {
	isDown bool
	came   []string
}

func deployed(t *testing.T, config string) (*nacre.Harness, *receiver) {
	t.Helper()
	harness, err := nacre.NewHarness(&webhooks{}, config)
	if err != nil {
		t.Fatal(err)
	}
	server := &receiver{}
	harness.OnHTTP(func(method, url string, _ []nacre.Header, body []byte) (nacre.Response, error) {
		if server.isDown {
			return nacre.Response{}, fmt.Errorf("nobody is there: %w", nacre.ErrFailed)
		}
		server.came = append(server.came, fmt.Sprintf("%s %s %s", method, url, body))
		return nacre.Response{Status: 202}, nil
	})
	return harness, server
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, what string, found, wanted any) {
	t.Helper()
	if fmt.Sprint(found) != fmt.Sprint(wanted) {
		t.Errorf("%s: %v, not %v", what, found, wanted)
	}
}

const hook = `{"url": "https://hooks.example.com/orders", "attempts": 3}`

func TestChangesAreSent(t *testing.T) {
	harness, server := deployed(t, hook)
	event := nacre.Event{Key: []byte("a"), Version: nacre.Version{CAS: 7, Body: []byte(`{"n":1}`)}}
	failed, err := harness.Feed(event)
	must(t, err)
	is(t, "failed", len(failed), 0)
	is(t, "came", server.came, `[POST https://hooks.example.com/orders {"id":"a","kind":"update","cas":"7","document":{"n":1}}]`)
	is(t, "state", len(harness.State()), 0)
	must(t, harness.Delete("a"))
	is(t, "came", len(server.came), 2)
}

func TestWhatIsNotTakenIsSentAgainLaterAndLaterAndGivenUp(t *testing.T) {
	harness, server := deployed(t, hook)
	server.isDown = true
	must(t, harness.Upsert("a", `{"n":1}`))
	must(t, harness.Upsert("b", `{"n":1}`))
	must(t, harness.Advance(999*time.Millisecond))
	is(t, "timers", len(harness.Timers()), 2)
	server.isDown = false
	must(t, harness.Advance(time.Millisecond))
	is(t, "came", len(server.came), 2)
	is(t, "state", len(harness.State()), 0)

	server.isDown = true
	must(t, harness.Upsert("a", `{"n":2}`))
	must(t, harness.Advance(3*time.Second))
	is(t, "timers", len(harness.Timers()), 0)
	is(t, "logged", harness.Logged(), "[warn a is given up: nobody is there: there is no connection, or it broke]")
	response, err := harness.Request("GET", "/", "")
	must(t, err)
	var answer map[string]map[string]attempt
	must(t, nacre.Request{Body: response.Body}.JSON(&answer))
	is(t, "lost", answer["lost"]["a"].Tries, 3)
}

func TestWhatComesLateIsTheNewest(t *testing.T) {
	harness, server := deployed(t, hook)
	server.isDown = true
	must(t, harness.Upsert("a", `{"n":1}`))
	must(t, harness.Upsert("a", `{"n":2}`))
	server.isDown = false
	must(t, harness.Advance(time.Hour))
	is(t, "came", len(server.came), 1)
}

func TestAConfigurationWithoutURLIsRefused(t *testing.T) {
	_, err := nacre.NewHarness(&webhooks{}, "{}")
	is(t, "refused", err != nil, true)
}
