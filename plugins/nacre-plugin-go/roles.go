package nacre

import (
	"reflect"
)

// role is one of the interfaces that a plugin has.
type role struct {
	method string
	wanted reflect.Type
	// Returns its method of a type. The name is a constant in each function, so that the linker keeps only methods of that name.
	of func(reflect.Type) (reflect.Method, bool)
}

// roles lists all roles in the order of the checks.
var roles = [...]role{
	{"OnUpdate", reflect.TypeFor[Updater](), func(of reflect.Type) (reflect.Method, bool) { return of.MethodByName("OnUpdate") }},
	{"OnDelete", reflect.TypeFor[Deleter](), func(of reflect.Type) (reflect.Method, bool) { return of.MethodByName("OnDelete") }},
	{"OnBatch", reflect.TypeFor[Batcher](), func(of reflect.Type) (reflect.Method, bool) { return of.MethodByName("OnBatch") }},
	{"Rollback", reflect.TypeFor[Rollbacker](), func(of reflect.Type) (reflect.Method, bool) { return of.MethodByName("Rollback") }},
	{"Handle", reflect.TypeFor[Handler](), func(of reflect.Type) (reflect.Method, bool) { return of.MethodByName("Handle") }},
	{"More", reflect.TypeFor[Continuer](), func(of reflect.Type) (reflect.Method, bool) { return of.MethodByName("More") }},
	{"Merge", reflect.TypeFor[Merger](), func(of reflect.Type) (reflect.Method, bool) { return of.MethodByName("Merge") }},
	{"OnTimer", reflect.TypeFor[TimerHandler](), func(of reflect.Type) (reflect.Method, bool) { return of.MethodByName("OnTimer") }},
	{"Init", reflect.TypeFor[Initializer](), func(of reflect.Type) (reflect.Method, bool) { return of.MethodByName("Init") }},
}

// checkRoles returns an error if the host would not call a method of the plugin that looks like one of a role.
func checkRoles(self any) error {
	kind := reflect.TypeOf(self)
	hasOne := false
	for _, role := range roles {
		if kind.Implements(role.wanted) {
			hasOne = true
			continue
		}
		method, found := role.of(kind)
		if !found && kind.Kind() != reflect.Pointer {
			pointer := reflect.PointerTo(kind)
			if pointer.Implements(role.wanted) {
				return Reject("%s has a pointer receiver: hand &%v{} to nacre.Run", role.method, kind)
			}
			method, found = role.of(pointer)
		}
		if found {
			wanted, _ := role.of(role.wanted)
			return Reject("%s is %v: %v is wanted", role.method, withoutReceiver(method.Type), wanted.Type)
		}
	}
	if !hasOne {
		return Reject("%v has no method of a plugin", kind)
	}
	return nil
}

// withoutReceiver returns the type of a method without its receiver.
func withoutReceiver(method reflect.Type) reflect.Type {
	var taken, given []reflect.Type
	for index := 1; index < method.NumIn(); index++ {
		taken = append(taken, method.In(index))
	}
	for index := range method.NumOut() {
		given = append(given, method.Out(index))
	}
	return reflect.FuncOf(taken, given, method.IsVariadic())
}
