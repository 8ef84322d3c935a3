package bodylimit

import (
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// shape describes which fields of a message contain messages. Protobuf itself does not distinguish messages from strings.
type shape struct {
	// fields are the fields that contain messages, with the Go types of the messages.
	fields map[protowire.Number]reflect.Type
}

// field returns the shape of the messages in a field, nil if the field contains no messages.
func (s *shape) field(number protowire.Number) *shape {
	if t, ok := s.fields[number]; ok {
		return shapeOf(t)
	}
	return nil
}

var definitions = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
})

// shapeOfKind returns the shape of the objects of a kind, nil if the kind has no protobuf form.
func shapeOfKind(kind schema.GroupVersionKind) *shape {
	for _, s := range []*runtime.Scheme{scheme.Scheme, definitions()} {
		if t, ok := s.AllKnownTypes()[kind]; ok {
			return shapeOf(t)
		}
	}
	return nil
}

var shapes sync.Map // by reflect.Type

// shapeOf returns the shape of an API type: a struct whose tags contain the field numbers, or a map, whose entries are messages with a key
// and a value.
func shapeOf(t reflect.Type) *shape {
	if known, ok := shapes.Load(t); ok {
		return known.(*shape)
	}
	s := &shape{fields: map[protowire.Number]reflect.Type{}}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			tag := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
			if len(tag) < 2 {
				continue
			}
			if number, err := strconv.Atoi(tag[1]); err == nil {
				s.add(protowire.Number(number), t.Field(i).Type)
			}
		}
	case reflect.Map:
		s.add(2, t.Elem())
	}
	known, _ := shapes.LoadOrStore(t, s)
	return known.(*shape)
}

// add adds a field if it contains messages. Each item of a list is a separate field. Lists of strings may be messages, but contain none.
func (s *shape) add(number protowire.Number, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct || t.Kind() == reflect.Map {
		s.fields[number] = t
	}
}
