// Package nacre is the guest SDK in Go: everything a plugin needs to fold the change stream into a state and to answer requests
// from it.
//
// A plugin is a value that is passed to [Run]. Its methods determine its abilities: see [Updater], [Deleter], [Batcher],
// [Rollbacker], [Handler], [Continuer], [Merger], [TimerHandler] and [Initializer].
//
//	type cities struct{}
//
//	func init() { nacre.Run(cities{}) }
//
//	// Go requires main; the host calls the methods of a plugin.
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
// The host relies on these rules: all durable data is in the state, because an instance may be replaced between any two calls;
// Init uses no capability except [Log]; equal calls make equal writes.
//
// A plugin accesses its environment through [State], [Timers], [KV], [HTTP], [Metrics] and [Log]. Each is a capability that the
// component imports if its code uses it; KV and HTTP must be granted. There is no clock and no source of random numbers: use the
// time of the event, the request or the timer. [time.Now] starts in 1970 and advances with each call, and random numbers are the
// same in each instance, also those of crypto/rand: do not create keys or tokens. There are no files and no sockets ([net.Listen]
// succeeds, but receives no connections), and printed text is dropped. [time.LoadLocation] needs the package time/tzdata.
//
// Goroutines may use the capabilities, one at a time. They run only while a method of the plugin runs: a goroutine that is still
// active when the method returns continues in a later call, where its writes count as those of another document, or never. So
// wait for your goroutines.
//
// The collector uses the memory limit of the deployment, from `[limits] memory_mb` in plugin.toml, by default 256 MiB: set it
// there if nodes give the plugin less.
//
// The SDK has no dependencies: each project contains a copy. Outside of the sandbox, in tests of a plugin with `go test`, a
// [Harness] replaces the host.
package nacre
