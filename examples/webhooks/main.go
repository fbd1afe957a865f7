// Sends each change of a collection to a URL, and retries failed requests.
//
// State: "wait/<id>" contains the change of a document to send and "lost/<id>" the one that was given up, as [attempt]. The
// timer of a document has its id as its name.
package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"nacre"
)

// The maximum number of doublings of the pause: 2^12 seconds are 68 minutes.
const doublingsMax = 12

type webhooks struct {
	// URL is the receiver.
	URL string `json:"url"`
	// Attempts is the maximum number of attempts per change.
	Attempts int `json:"attempts"`
}

func init() { nacre.Run(&webhooks{}) }

// The compiler reports missing or wrong methods of a plugin.
var _ interface {
	nacre.Initializer
	nacre.Updater
	nacre.Deleter
	nacre.TimerHandler
	nacre.Handler
} = &webhooks{}

// Go requires main; the host calls the methods.
func main() {}

// change is the body that is sent.
type change struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// CAS differs for each change: a receiver recognizes repeated changes by it.
	CAS      uint64          `json:"cas,string"`
	Document json.RawMessage `json:"document,omitempty"`
}

// attempt is a change whose sending failed.
type attempt struct {
	Change json.RawMessage `json:"change"`
	Tries  int             `json:"tries"`
	Reason string          `json:"reason"`
}

// Init reads the configuration: {"url": "https://hooks.example.com/orders", "attempts": 10}.
func (hooks *webhooks) Init(config []byte) error {
	*hooks = webhooks{Attempts: 10}
	if err := json.Unmarshal(config, hooks); err != nil {
		return err
	}
	if hooks.URL == "" || hooks.Attempts < 1 {
		return nacre.Reject(`the configuration is {"url": "https://…", "attempts": 10}, with at least one attempt`)
	}
	return nil
}

// OnUpdate sends a document that was created or changed.
func (hooks *webhooks) OnUpdate(event nacre.Event) error {
	if !event.IsJSON() {
		return fmt.Errorf("it is no JSON")
	}
	return hooks.begin(event, change{Kind: "update", Document: event.Body})
}

// OnDelete sends the deletion or expiry of a document.
func (hooks *webhooks) OnDelete(event nacre.Event) error {
	return hooks.begin(event, change{Kind: "delete"})
}

// begin replaces an earlier change of the document that still waits: a late one must not be older.
func (hooks *webhooks) begin(event nacre.Event, change change) error {
	change.ID, change.CAS = event.ID(), event.CAS
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	nacre.State.Delete("lost/" + change.ID)
	return hooks.send(event.Now, change.ID, attempt{Change: text})
}

// OnTimer sends a change again.
func (hooks *webhooks) OnTimer(now time.Time, timer nacre.Timer) error {
	var again attempt
	if found, err := nacre.State.GetJSON("wait/"+timer.Name, &again); !found {
		return err
	}
	return hooks.send(now, timer.Name, again)
}

func (hooks *webhooks) send(now time.Time, id string, this attempt) error {
	headers := []nacre.Header{{Name: "content-type", Value: "application/json"}}
	response, err := nacre.HTTP.Send("POST", hooks.URL, headers, this.Change)
	if err == nil && response.Status < 300 {
		nacre.State.Delete("wait/" + id)
		nacre.Timers.Cancel(id)
		nacre.Metrics.Add("sent", 1)
		return nil
	}
	this.Tries++
	this.Reason = fmt.Sprintf("the status %d", response.Status)
	if err != nil {
		// A returned error would repeat the call until it succeeds, and delay all later documents.
		this.Reason = err.Error()
	}
	if this.Tries >= hooks.Attempts {
		nacre.State.Delete("wait/" + id)
		nacre.Timers.Cancel(id)
		nacre.Log.Warn("%s is given up: %s", id, this.Reason)
		return nacre.State.PutJSON("lost/"+id, this)
	}
	pause := time.Second << min(this.Tries-1, doublingsMax)
	nacre.Timers.Set(id, now.Add(pause), nil)
	return nacre.State.PutJSON("wait/"+id, this)
}

// Handle returns the waiting changes, and those given up.
func (hooks *webhooks) Handle(nacre.Request) (nacre.Response, error) {
	answer := map[string]map[string]attempt{"wait": {}, "lost": {}}
	for kind, attempts := range answer {
		for entry := range nacre.State.ScanPrefix(kind + "/") {
			var one attempt
			if err := json.Unmarshal(entry.Value, &one); err != nil {
				return nacre.Response{}, err
			}
			attempts[strings.TrimPrefix(entry.Key, kind+"/")] = one
		}
	}
	return nacre.JSON(200, answer)
}
