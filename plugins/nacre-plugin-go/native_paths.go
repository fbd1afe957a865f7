//go:build !wasip1

package nacre

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Subdocument operations outside of the sandbox, as far as tests of plugins need them: members are sorted by name.

// split returns the steps of a path: a string is the name of a member, an int the index of an element, -1 the last.
func split(path string) ([]any, bool) {
	var steps []any
	for path != "" {
		switch {
		case path[0] == '[':
			inside, rest, found := strings.Cut(path[1:], "]")
			index, err := strconv.Atoi(inside)
			if !found || err != nil || index < -1 {
				return nil, false
			}
			steps, path = append(steps, index), rest
		case path[0] == '`':
			name, rest, found := strings.Cut(path[1:], "`")
			if !found {
				return nil, false
			}
			steps, path = append(steps, name), rest
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			steps, path = append(steps, path[:end]), path[end:]
		}
		if rest, found := strings.CutPrefix(path, "."); found {
			if path = rest; path == "" {
				return nil, false
			}
		}
	}
	return steps, true
}

func parsed(text []byte) (value any, isJSON bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return value, decoder.Decode(&value) == nil
}

// indexIn returns the index of an element in an array.
func indexIn(array []any, index int) (int, bool) {
	if index < 0 {
		index += len(array)
	}
	return index, index >= 0 && index < len(array)
}

func lookUp(body []byte, path string) json.RawMessage {
	value, isJSON := parsed(body)
	steps, isPath := split(path)
	if !isJSON || !isPath {
		return nil
	}
	for _, step := range steps {
		found := false
		switch container := value.(type) {
		case map[string]any:
			name, _ := step.(string)
			value, found = container[name]
		case []any:
			if index, isIndex := step.(int); isIndex {
				if index, found = indexIn(container, index); found {
					value = container[index]
				}
			}
		}
		if !found {
			return nil
		}
	}
	text, _ := json.Marshal(value)
	return text
}

// changed returns the body after a change.
func changed(body []byte, change Change, given []byte) ([]byte, error) {
	refused := func(why string) error {
		return &refusal{ErrPath, fmt.Sprintf("%s at %q", why, change.Path)}
	}
	value, isJSON := parsed(body)
	steps, isPath := split(change.Path)
	if !isJSON || !isPath || change.Xattr {
		return nil, refused("this cannot be done to a document outside of the sandbox")
	}
	operand, _ := parsed(given)
	value, _, err := descend(value, true, steps, edit{change.Operation, operand})
	if err != nil {
		return nil, refused(err.Error())
	}
	return json.Marshal(value)
}

type edit struct {
	operation Operation
	operand   any
}

// makes reports whether missing parents are created.
func (edit edit) makes() bool {
	return edit.operation != PathRemove && edit.operation != PathReplace && edit.operation != ArrayInsert
}

// descend returns the value after an edit at those steps below it, and whether it still exists.
func descend(value any, found bool, steps []any, edit edit) (any, bool, error) {
	if len(steps) == 0 {
		return edit.of(value, found)
	}
	if !found {
		if _, isName := steps[0].(string); !edit.makes() || !isName {
			return nil, false, fmt.Errorf("there is nothing")
		}
		value = map[string]any{}
	}
	switch container := value.(type) {
	case map[string]any:
		name, isName := steps[0].(string)
		if !isName {
			break
		}
		old, found := container[name]
		inner, stays, err := descend(old, found, steps[1:], edit)
		if delete(container, name); stays {
			container[name] = inner
		}
		return container, true, err
	case []any:
		given, isIndex := steps[0].(int)
		index, found := indexIn(container, given)
		if edit.operation == ArrayInsert && len(steps) == 1 && isIndex && (found || given == len(container)) {
			return slices.Insert(container, index, edit.operand), true, nil
		}
		if !isIndex || !found {
			break
		}
		inner, stays, err := descend(container[index], true, steps[1:], edit)
		if container[index] = inner; !stays {
			container = slices.Delete(container, index, index+1)
		}
		return container, true, err
	}
	return nil, true, fmt.Errorf("there is nothing")
}

// of returns the value after the edit, and whether it still exists.
func (edit edit) of(value any, found bool) (any, bool, error) {
	array, isArray := value.([]any)
	isArray = isArray || !found
	switch edit.operation {
	case PathInsert:
		if found {
			return value, true, fmt.Errorf("there is a value")
		}
		return edit.operand, true, nil
	case PathUpsert:
		return edit.operand, true, nil
	case PathReplace, PathRemove:
		if !found {
			return nil, false, fmt.Errorf("there is nothing")
		}
		return edit.operand, edit.operation == PathReplace, nil
	case PathCounter:
		return sum(value, edit.operand)
	case ArrayAppend, ArrayPrepend, ArrayAddUnique:
		if !isArray {
			break
		}
		same := func(one any) bool { return fmt.Sprint(one) == fmt.Sprint(edit.operand) }
		if edit.operation == ArrayAddUnique && slices.ContainsFunc(array, same) {
			return value, true, fmt.Errorf("there is such an element")
		}
		if edit.operation == ArrayPrepend {
			return slices.Insert(array, 0, edit.operand), true, nil
		}
		return append(array, edit.operand), true, nil
	}
	return value, true, fmt.Errorf("there is no array")
}

func sum(value, operand any) (any, bool, error) {
	if value == nil {
		value = json.Number("0")
	}
	number, isNumber := value.(json.Number)
	delta, isDelta := operand.(json.Number)
	if !isNumber || !isDelta {
		return value, true, fmt.Errorf("there is no number")
	}
	before, err := number.Int64()
	by, wrong := delta.Int64()
	if err != nil || wrong != nil {
		return value, true, fmt.Errorf("there is no whole number")
	}
	return json.Number(strconv.FormatInt(before+by, 10)), true, nil
}
