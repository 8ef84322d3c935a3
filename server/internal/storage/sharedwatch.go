package storage

import (
	"bytes"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sharedObject is an object that several watches deliver. It implements runtime.CacheableObject: it is serialized once in each
// format. It must not be modified.
type sharedObject struct {
	metav1.Object
	object runtime.Object
	made   func(bytes int64) // called with the size of each serialized format

	mu    sync.Mutex
	forms map[runtime.Identifier]*form
}

// share returns the object that several watches may deliver; an error is returned unchanged. made is called with the size of
// everything that is derived from the object and cached.
func share(object runtime.Object, made func(bytes int64)) runtime.Object {
	m, err := meta.Accessor(object)
	if err != nil {
		return object
	}
	return &sharedObject{Object: m, object: object, made: made}
}

type form struct {
	once sync.Once
	raw  []byte
	err  error
}

// CacheEncode implements runtime.CacheableObject.
func (s *sharedObject) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	s.mu.Lock()
	f := s.forms[id]
	if f == nil {
		if s.forms == nil {
			s.forms = map[runtime.Identifier]*form{}
		}
		f = &form{}
		s.forms[id] = f
	}
	s.mu.Unlock()
	f.once.Do(func() {
		var buffer bytes.Buffer
		f.err = encode(s.GetObject(), &buffer)
		f.raw = buffer.Bytes()
		s.made(int64(buffer.Cap()))
	})
	if f.err != nil {
		return f.err
	}
	if splice, ok := w.(runtime.Splice); ok {
		splice.Splice(f.raw)
		return nil
	}
	_, err := w.Write(f.raw)
	return err
}

// GetObject implements runtime.CacheableObject.
func (s *sharedObject) GetObject() runtime.Object { return s.object.DeepCopyObject() }

// GetObjectKind implements runtime.Object.
func (s *sharedObject) GetObjectKind() schema.ObjectKind { return s.object.GetObjectKind() }

// DeepCopyObject implements runtime.Object.
func (s *sharedObject) DeepCopyObject() runtime.Object {
	copied := s.object.DeepCopyObject()
	m, _ := meta.Accessor(copied) // like the original
	return &sharedObject{Object: m, object: copied, made: func(int64) {}}
}
