package compact

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// coder writes and reads the values of one type.
type coder interface {
	pack(p *packer, v reflect.Value)
	unpack(u *unpacker, into reflect.Value)
}

// coderOf returns the coder of a type, which is part of the types within.
func coderOf(t reflect.Type, within []reflect.Type) (coder, error) {
	if slices.Contains(within, t) {
		return nil, fmt.Errorf("%s contains itself", t)
	}
	within = append(slices.Clone(within), t)
	if t == reflect.TypeFor[metav1.Time]() {
		return timeCoder{}, nil
	}
	switch t.Kind() {
	case reflect.String:
		return stringCoder{}, nil
	case reflect.Bool:
		return boolCoder{}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return intCoder{}, nil
	case reflect.Uint8:
		return uintCoder{}, nil
	case reflect.Pointer:
		elem, err := coderOf(t.Elem(), within)
		return pointerCoder{elem}, err
	case reflect.Slice:
		elem, err := coderOf(t.Elem(), within)
		return sliceCoder{elem}, err
	case reflect.Map:
		if t == reflect.TypeFor[map[string]string]() {
			return labelsCoder{}, nil
		}
		elem, err := coderOf(t.Elem(), within)
		if t.Key().Kind() != reflect.String {
			err = fmt.Errorf("%s has keys that are no strings", t)
		}
		return mapCoder{t, elem}, err
	case reflect.Struct:
		return newStructCoder(t, within)
	}
	return nil, fmt.Errorf("%s is not known", t)
}

type stringCoder struct{}

func (stringCoder) pack(p *packer, v reflect.Value)        { p.string(v.String()) }
func (stringCoder) unpack(u *unpacker, into reflect.Value) { into.SetString(u.string()) }

type boolCoder struct{}

func (boolCoder) pack(p *packer, v reflect.Value) {
	if v.Bool() {
		p.number(1)
		return
	}
	p.number(0)
}
func (boolCoder) unpack(u *unpacker, into reflect.Value) { into.SetBool(u.number() == 1) }

type intCoder struct{}

func (intCoder) pack(p *packer, v reflect.Value)        { p.number(zigzag(v.Int())) }
func (intCoder) unpack(u *unpacker, into reflect.Value) { into.SetInt(unzigzag(u.number())) }

// zigzag maps numbers near zero to small unsigned numbers.
func zigzag(n int64) uint64   { return uint64(n<<1) ^ uint64(n>>63) }
func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

type uintCoder struct{}

func (uintCoder) pack(p *packer, v reflect.Value)        { p.number(v.Uint()) }
func (uintCoder) unpack(u *unpacker, into reflect.Value) { into.SetUint(u.number()) }

// timeCoder writes whether the time is set, and then its seconds since 1970.
type timeCoder struct{}

func (timeCoder) pack(p *packer, v reflect.Value) {
	t := v.Addr().Interface().(*metav1.Time)
	if t.IsZero() {
		p.number(0)
		return
	}
	p.number(1)
	p.number(zigzag(t.Unix()))
}

func (timeCoder) unpack(u *unpacker, into reflect.Value) {
	if u.number() == 1 {
		into.Addr().Interface().(*metav1.Time).Time = time.Unix(unzigzag(u.number()), 0)
	}
}

type pointerCoder struct{ elem coder }

func (c pointerCoder) pack(p *packer, v reflect.Value) {
	if v.IsNil() {
		p.number(0)
		return
	}
	p.number(1)
	c.elem.pack(p, v.Elem())
}

func (c pointerCoder) unpack(u *unpacker, into reflect.Value) {
	if u.number() == 0 {
		return
	}
	into.Set(reflect.New(into.Type().Elem()))
	c.elem.unpack(u, into.Elem())
}

// sliceCoder writes the length and one, so that zero is nil.
type sliceCoder struct{ elem coder }

func (c sliceCoder) pack(p *packer, v reflect.Value) {
	if v.IsNil() {
		p.number(0)
		return
	}
	p.number(uint64(v.Len()) + 1)
	for i := range v.Len() {
		c.elem.pack(p, v.Index(i))
	}
}

func (c sliceCoder) unpack(u *unpacker, into reflect.Value) {
	n := int(u.number())
	if n == 0 {
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), n-1, n-1))
	for i := range n - 1 {
		c.elem.unpack(u, into.Index(i))
	}
}

// mapCoder writes the length and one, so that zero is nil.
type mapCoder struct {
	typ  reflect.Type
	elem coder
}

func (c mapCoder) pack(p *packer, v reflect.Value) {
	if v.IsNil() {
		p.number(0)
		return
	}
	p.number(uint64(v.Len()) + 1)
	value := reflect.New(c.typ.Elem()).Elem() // addressable
	for entries := v.MapRange(); entries.Next(); {
		p.string(entries.Key().String())
		value.Set(entries.Value())
		c.elem.pack(p, value)
	}
}

func (c mapCoder) unpack(u *unpacker, into reflect.Value) {
	n := int(u.number())
	if n == 0 {
		return
	}
	into.Set(reflect.MakeMapWithSize(c.typ, n-1))
	for range n - 1 {
		key, value := reflect.New(c.typ.Key()).Elem(), reflect.New(c.typ.Elem()).Elem()
		key.SetString(u.string())
		c.elem.unpack(u, value)
		into.SetMapIndex(key, value)
	}
}

// labelsCoder is mapCoder for map[string]string, without reflection. Most objects have such maps.
type labelsCoder struct{}

func (labelsCoder) pack(p *packer, v reflect.Value) {
	labels := v.Interface().(map[string]string)
	if labels == nil {
		p.number(0)
		return
	}
	p.number(uint64(len(labels)) + 1)
	for key, value := range labels {
		p.string(key)
		p.string(value)
	}
}

func (labelsCoder) unpack(u *unpacker, into reflect.Value) {
	n := int(u.number())
	if n == 0 {
		return
	}
	labels := make(map[string]string, n-1)
	for range n - 1 {
		key := u.string()
		labels[key] = u.string()
	}
	*into.Addr().Interface().(*map[string]string) = labels
}

// structCoder writes one bit per field for whether it is set, and then the fields that are.
type structCoder []structField

type structField struct {
	index int
	coder coder
}

func newStructCoder(t reflect.Type, within []reflect.Type) (coder, error) {
	var c structCoder
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			return nil, fmt.Errorf("field %s of %s cannot be read", f.Name, t)
		}
		field, err := coderOf(f.Type, within)
		if err != nil {
			return nil, err
		}
		c = append(c, structField{i, field})
	}
	if len(c) > 64 {
		return nil, fmt.Errorf("%s has %d fields", t, len(c))
	}
	return c, nil
}

func (c structCoder) pack(p *packer, v reflect.Value) {
	var there uint64
	for n, f := range c {
		if !v.Field(f.index).IsZero() {
			there |= 1 << n
		}
	}
	p.number(there)
	for n, f := range c {
		if there&(1<<n) != 0 {
			f.coder.pack(p, v.Field(f.index))
		}
	}
}

func (c structCoder) unpack(u *unpacker, into reflect.Value) {
	there := u.number()
	for n, f := range c {
		if there&(1<<n) != 0 {
			f.coder.unpack(u, into.Field(f.index))
		}
	}
}
