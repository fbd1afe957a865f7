package nacre

// hasActed reports whether this call has had external effects.
var hasActed bool

// beginTurn reports to the host that the item at an index of the call begins, and tellFailed that a document failed; both are
// nil until the first external effect, so that a plugin without external effects imports nothing for them.
var (
	beginTurn  func(index uint32)
	tellFailed func(index uint32, message string)
)

// acts is called before an external effect.
func acts() {
	working.Lock()
	defer working.Unlock()
	hasActed, beginTurn, tellFailed = true, turnBegin, turnFailed
}

// beginItem begins the item at an index of the call. If an earlier item has had external effects, it is reported to the host,
// which then does not repeat that item when a later one ends the call. All later items are reported too, because a deadline
// ends the item that was reported last. Items that only fold are cheaper to repeat than to report.
//
// It takes the documents that failed before, and returns those that must still be reported at the end of the call.
func beginItem(index int, failed []DocumentError) []DocumentError {
	if !hasActed {
		return failed
	}
	for _, one := range failed {
		tellFailed(uint32(one.Index), one.Message)
	}
	beginTurn(uint32(index))
	return nil
}
