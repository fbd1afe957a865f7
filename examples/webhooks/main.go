// Sends each change of a collection to a URL, and tries again what is not taken.
//
// State: "wait/<id>" and "lost/<id>" are what is to be sent of a document and what was given up, as [attempt]. The timer of a
// document has its id as its name.
package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"nacre"
)

// The longest pause is 2 to the power of that, in seconds: 68 minutes.
const doublingsMax = 12

type webhooks struct {
	// URL is where to send.
	URL string `json:"url"`
	// Attempts is how often, for one change.
	Attempts int `json:"attempts"`
}

func init() { nacre.Run(&webhooks{}) }

// The compiler says what a method lacks to be one of a plugin.
var _ interface {
	nacre.Initializer
	nacre.Updater
	nacre.Deleter
	nacre.TimerHandler
	nacre.Handler
} = &webhooks{}

// Go asks for it; a plugin is called by its methods.
func main() {}

// change is what is sent.
type change struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// CAS is another one for each change: by it a receiver knows what has come twice.
	CAS      uint64          `json:"cas,string"`
	Document json.RawMessage `json:"document,omitempty"`
}

// attempt is a change that was sent in vain.
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

// OnDelete sends that a document was deleted, or has expired.
func (hooks *webhooks) OnDelete(event nacre.Event) error {
	return hooks.begin(event, change{Kind: "delete"})
}

// begin takes the place of an earlier change of the document that still waits: what comes late must not be older.
func (hooks *webhooks) begin(event nacre.Event, change change) error {
	change.ID, change.CAS = event.ID(), event.CAS
	text, err := json.Marshal(change)
	if err != nil {
		return err
	}
	nacre.State.Delete("lost/" + change.ID)
	return hooks.send(event.Now, change.ID, attempt{Change: text})
}

// OnTimer sends once more.
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
		// Returned, it would have the call made again until it goes well, and all documents behind this one wait.
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

// Handle answers with what waits, and what was given up.
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
