package storage

import (
	"errors"
	"strconv"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// refused is the error for storing an object that the server could not read.
type refused struct{ *apierrors.StatusError }

func isRefused(err error) bool {
	var r *refused
	return errors.As(err, &r)
}

// refusal returns the error for clients in err: upstream's storage wraps the errors of a transformer.
func refusal(err error) error {
	var r *refused
	if errors.As(err, &r) {
		return r.StatusError
	}
	return err
}

// locating decodes like decoding, and returns errors with the field.
var locating = jsonv2.JoinOptions(decoding, jsonv1.ReportErrorsWithLegacySemantics(false))

// invalid returns the error for invalid data with a cause.
func invalid(c *typedCodec, name string, data []byte, cause error) error {
	at, value, detail := field.NewPath("metadata", "name"), name, cause.Error()
	var located *jsonv2.SemanticError
	if errors.As(jsonv2.Unmarshal(data, c.newFunc(), locating), &located) && located.JSONPointer != "" {
		at, value = pathOf(located.JSONPointer), valueAt(data, located.JSONPointer)
		if located.Err != nil {
			detail = located.Err.Error()
		}
	}
	return &refused{apierrors.NewInvalid(c.kind.GroupKind(), name, field.ErrorList{
		field.Invalid(at, value, "the server cannot read this value: "+detail),
	})}
}

// valueAt returns the JSON value at a pointer in data.
func valueAt(data jsontext.Value, pointer jsontext.Pointer) string {
	for token := range pointer.Tokens() {
		var fields map[string]jsontext.Value
		var items []jsontext.Value
		switch {
		case jsonv2.Unmarshal(data, &fields, decoding) == nil:
			data = fields[token]
		case jsonv2.Unmarshal(data, &items, decoding) == nil:
			if n, err := strconv.Atoi(token); err == nil && n < len(items) {
				data = items[n]
			}
		}
	}
	return strings.Trim(string(data[:min(len(data), 100)]), `"`)
}

// pathOf returns the field path of a pointer.
func pathOf(pointer jsontext.Pointer) *field.Path {
	var path *field.Path
	for token := range pointer.Tokens() {
		index, err := strconv.Atoi(token)
		switch {
		case path == nil:
			path = field.NewPath(token)
		case err == nil:
			path = path.Index(index)
		case strings.ContainsAny(token, "./"):
			path = path.Key(token)
		default:
			path = path.Child(token)
		}
	}
	return path
}
