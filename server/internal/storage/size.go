package storage

import (
	"math/bits"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// stringSize, anySize and sliceSize are the sizes of headers, mapSize that of an empty map.
	stringSize, anySize, sliceSize, mapSize = 16, 16, 24, 48
	// leastSize is the memory of an event besides its object: the entry of its stream, and allocations that are rounded
	// up.
	leastSize = 512
)

// sizeOf returns the approximate memory of an object in bytes. The stored size is not a good estimate: a list of empty objects
// takes twenty times as much memory as storage.
func (s *sizers) sizeOf(object runtime.Object) int64 {
	size := int64(leastSize)
	if object == nil {
		return size
	}
	if u, ok := object.(*unstructured.Unstructured); ok {
		return size + int64(sizeOfJSON(u.Object))
	}
	v := reflect.ValueOf(object)
	return size + int64(s.of(v.Type()).size(v))
}

// sizeOfJSON returns the size of the data to which an interface value points.
func sizeOfJSON(value any) int {
	switch v := value.(type) {
	case string:
		return stringSize + len(v)
	case map[string]any:
		size := mapOf(len(v), stringSize+anySize)
		for key, value := range v {
			size += len(key) + sizeOfJSON(value)
		}
		return size
	case []any:
		size := sliceSize + anySize*cap(v)
		for _, item := range v {
			size += sizeOfJSON(item)
		}
		return size
	case int64, float64:
		return 8
	}
	return 0
}

// mapOf returns the size of a map: groups of eight entries, of which one in eight stays free in a map of several groups.
func mapOf(length, entry int) int {
	switch {
	case length == 0:
		return mapSize
	case length <= 8:
		return mapSize + 8*(1+entry)
	}
	return mapSize + (1+entry)<<bits.Len(uint(length*8/7))
}

// sizer returns the size of the data to which a value of a type points, without the value itself. It is nil if values do not
// contain pointers.
type sizer func(reflect.Value) int

// sizers are the sizers of known types, by type.
type sizers struct{ known sync.Map }

// of returns the sizer of a type.
func (s *sizers) of(t reflect.Type) sizer {
	if known, ok := s.known.Load(t); ok {
		return known.(sizer)
	}
	made := s.make(t, map[reflect.Type]*sizer{})
	s.known.Store(t, made)
	return made
}

// make returns the sizer of a type; the sizers of the types that contain it are being made.
func (s *sizers) make(t reflect.Type, within map[reflect.Type]*sizer) sizer {
	switch t.Kind() {
	case reflect.String:
		return func(v reflect.Value) int { return v.Len() }
	case reflect.Interface:
		return func(v reflect.Value) int {
			if v.IsNil() {
				return 0
			}
			return int(v.Elem().Type().Size()) + s.of(v.Elem().Type()).size(v.Elem())
		}
	case reflect.Pointer, reflect.Struct, reflect.Slice, reflect.Array, reflect.Map:
	default:
		return nil
	}
	if t == reflect.TypeFor[map[string]string]() {
		return sizeOfStrings
	}
	if being, ok := within[t]; ok {
		return func(v reflect.Value) int { return being.size(v) }
	}
	var made sizer
	within[t] = &made
	switch t.Kind() {
	case reflect.Struct:
		made = s.structs(t, within)
	case reflect.Map:
		key, value, entry := s.make(t.Key(), within), s.make(t.Elem(), within), int(t.Key().Size()+t.Elem().Size())
		made = func(v reflect.Value) int {
			if v.IsNil() {
				return 0
			}
			size := mapOf(v.Len(), entry)
			for i := v.MapRange(); i.Next(); {
				size += key.size(i.Key()) + value.size(i.Value())
			}
			return size
		}
	default:
		made = s.items(t, within)
	}
	delete(within, t)
	return made
}

func (s *sizers) structs(t reflect.Type, within map[reflect.Type]*sizer) sizer {
	type field struct {
		index int
		of    sizer
	}
	var fields []field
	for i := range t.NumField() {
		if of := s.make(t.Field(i).Type, within); of != nil {
			fields = append(fields, field{i, of})
		}
	}
	if fields == nil {
		return nil
	}
	return func(v reflect.Value) int {
		size := 0
		for _, f := range fields {
			size += f.of(v.Field(f.index))
		}
		return size
	}
}

// items returns the sizer of pointers, slices and arrays.
func (s *sizers) items(t reflect.Type, within map[reflect.Type]*sizer) sizer {
	item, size := s.make(t.Elem(), within), int(t.Elem().Size())
	if t.Kind() == reflect.Pointer {
		return func(v reflect.Value) int {
			if v.IsNil() {
				return 0
			}
			return size + item.size(v.Elem())
		}
	}
	if t.Kind() == reflect.Array {
		if size = 0; item == nil {
			return nil
		}
	}
	return func(v reflect.Value) int {
		all := v.Cap() * size
		if item != nil {
			for i := range v.Len() {
				all += item(v.Index(i))
			}
		}
		return all
	}
}

func (s sizer) size(v reflect.Value) int {
	if s == nil {
		return 0
	}
	return s(v)
}

// sizeOfStrings is the sizer of the labels, annotations and data of most objects.
func sizeOfStrings(v reflect.Value) int {
	if v.IsNil() {
		return 0
	}
	size := mapOf(v.Len(), 2*stringSize)
	if !v.CanInterface() {
		return size
	}
	for key, value := range v.Interface().(map[string]string) {
		size += len(key) + len(value)
	}
	return size
}

// SizeOf returns the approximate memory of an object in bytes.
func SizeOf(object *unstructured.Unstructured) int64 {
	return leastSize + int64(sizeOfJSON(object.Object))
}
