package nacre

// hasActed is whether something was done outside of the state in this call.
var hasActed bool

// beginTurn tells the host that the item at an index of the call begins, and tellFailed that a document could not be processed;
// nil until something was done outside, so that a plugin that does nothing there imports nothing for it.
var (
	beginTurn  func(index uint32)
	tellFailed func(index uint32, message string)
)

// acts is called before something is done outside.
func acts() {
	working.Lock()
	defer working.Unlock()
	hasActed, beginTurn, tellFailed = true, turnBegin, turnFailed
}

// beginItem begins the item at an index of the call. Where one before has acted outside, the host is told: it does not have
// that done again because a later item ends the call. It is told of all from there on, as it takes the one that it was told of
// last for the one that a deadline ends. What only folds is made again for less than this costs.
//
// It takes the documents that failed before, and gives those that the host is still to be told of at the end of the call.
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
