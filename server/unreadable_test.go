package server

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcplane/kcp/server/internal/storage"
)

func TestManyUnreadableObjectsDoNotBlockTheirReaders(t *testing.T) {
	objects := newUnreadableObjects()
	for range unreadableQueue + 10 {
		objects.add(storage.Unreadable{Cluster: "c"})
	}
	if len(objects) != unreadableQueue {
		t.Errorf("%d objects wait, want %d", len(objects), unreadableQueue)
	}
}

func TestTheEventOfAnUnreadableObjectIsTheSameInAllProcesses(t *testing.T) {
	u := storage.Unreadable{Cluster: "c", Resource: schema.GroupResource{Group: "g", Resource: "r"}, Name: strings.Repeat("n", 253), Err: errors.New(strings.Repeat("e", 5000))}
	one, other := unreadableEvent(u, metav1.Now()), unreadableEvent(u, metav1.Now())
	if one.Name != other.Name || one.Namespace != "default" || len(one.Message) > 1024 || len(one.Name) > 63 {
		t.Errorf("got %+v", one)
	}
	u.Namespace = "n"
	if other := unreadableEvent(u, metav1.Now()); other.Name == one.Name || other.Namespace != "n" {
		t.Errorf("got %+v", other)
	}
}
