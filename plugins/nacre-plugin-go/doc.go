// Package nacre is the guest kit in Go: everything a plugin needs to fold the change stream into a state and answer from it.
//
// A plugin is a value that is handed to [Run]. What it can do is what it has methods for: see [Updater], [Deleter], [Batcher],
// [Rollbacker], [Handler], [Continuer], [Merger], [TimerHandler] and [Initializer].
//
//	type cities struct{}
//
//	func init() { nacre.Run(cities{}) }
//
//	// main is asked for by Go; a plugin is called by its methods.
//	func main() {}
//
//	func (cities) OnUpdate(event nacre.Event) error {
//		var document struct{ City string }
//		if err := event.JSON(&document); err != nil {
//			return err
//		}
//		nacre.State.Put(event.ID(), []byte(document.City))
//		return nil
//	}
//
//	func (cities) OnDelete(event nacre.Event) error {
//		nacre.State.Delete(event.ID())
//		return nil
//	}
//
//	func (cities) Handle(request nacre.Request) (nacre.Response, error) {
//		city, _ := nacre.State.Get(request.Path[1:])
//		return nacre.JSON(200, map[string]string{"city": string(city)})
//	}
//
// The host relies on this: nothing that must survive lies outside the state, since an instance may be replaced between any
// two calls; Init uses no capability but [Log]; equal calls give equal writes.
//
// What is outside is reached through [State], [Timers], [KV], [HTTP], [Metrics] and [Log]. Each is a capability, which the
// component asks for once the code uses it; KV and HTTP have to be granted. There is no clock and no chance: the time is that of
// the event, the request or the timer, [time.Now] counts up from 1970 by what it is asked, and random numbers are the same in each
// instance, also those of crypto/rand: neither keys nor tokens can be made. There are no files and no sockets ([net.Listen]
// succeeds, and nothing reaches it), and what is printed goes nowhere. [time.LoadLocation] needs the package time/tzdata.
//
// Goroutines may use what is outside, one at a time. They run while a method of the plugin does: what is left behind when it
// returns goes on in a later call, where what it writes counts as done by another document, or never. So wait for them.
//
// The collector knows the memory that the deployment has, from `[limits] memory_mb` in plugin.toml, else 256 MiB: a plugin for
// nodes that give it less has to say so there.
//
// The kit has no dependencies: a copy lies in each project. Outside of the sandbox, in tests of a plugin by `go test`, a [Harness]
// takes the place of the host.
package nacre
