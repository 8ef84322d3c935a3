package durability

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

const (
	namespace    = "default"
	registerName = "register"
)

var widgets = schema.GroupVersionResource{Group: "durability.test", Version: "v1", Resource: "widgets"}

// cluster is the work of the clients of one logical cluster, over all lives of the server.
type cluster struct {
	name     string
	register *history

	mu      sync.Mutex
	objects map[string]state // by "<resource>/<name>"
	serial  int
	seen    []seen // states of the register that its watch delivered
	version string // last version that the watch delivered
	broken  []error
}

// state is the state of an object in the view of its client.
type state int

const (
	unknown state = iota
	present
	absent
)

type seen struct{ value, version string }

// unanswered reports whether the request of an error may have taken effect. A refusal of the API says that it has not.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500
}

func (c *cluster) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	return c.serial
}

func (c *cluster) set(key string, s state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects[key] = s
}

func (c *cluster) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, fmt.Errorf(format, args...))
}

// put writes new values into the register until ctx ends or a response is lost because the server was killed.
func (c *cluster) put(ctx context.Context, kube kubernetes.Interface, client int) {
	for ctx.Err() == nil {
		value := fmt.Sprint(c.next())
		call := c.register.now()
		_, err := kube.CoreV1().ConfigMaps(namespace).Update(ctx, registerOf(value), metav1.UpdateOptions{})
		switch {
		case err == nil:
			c.register.note(client, request{put: true, value: value}, response{}, call)
		case unanswered(err):
			c.register.note(client, request{put: true, value: value}, response{unknown: true}, call)
			return
		default:
			c.fail("putting %s: %w", value, err)
			return
		}
	}
}

func registerOf(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: registerName}, Data: map[string]string{"value": value}}
}

// get reads the register until ctx ends.
func (c *cluster) get(ctx context.Context, kube kubernetes.Interface, client int) {
	for ctx.Err() == nil {
		call := c.register.now()
		got, err := kube.CoreV1().ConfigMaps(namespace).Get(ctx, registerName, metav1.GetOptions{})
		if err == nil {
			c.register.note(client, request{}, response{value: got.Data["value"]}, call)
		} else if !unanswered(err) {
			c.fail("getting the register: %w", err)
			return
		}
	}
}

// churn creates objects of a built-in and of a custom resource, and deletes every third one, until ctx ends.
func (c *cluster) churn(ctx context.Context, all dynamic.Interface) {
	resources := []schema.GroupVersionResource{corev1.SchemeGroupVersion.WithResource("configmaps"), widgets}
	for ctx.Err() == nil {
		n := c.next()
		r := resources[n%2]
		kind := map[string]string{"configmaps": "ConfigMap", "widgets": "Widget"}[r.Resource]
		name := fmt.Sprintf("object-%d", n)
		key := r.Resource + "/" + name
		client := all.Resource(r).Namespace(namespace)
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(r.GroupVersion().WithKind(kind))
		object.SetName(name)
		c.set(key, unknown)
		if _, err := client.Create(ctx, object, metav1.CreateOptions{}); err != nil {
			if !unanswered(err) {
				c.fail("creating %s: %w", key, err)
			}
			continue
		}
		c.set(key, present)
		if n%3 == 0 {
			c.set(key, unknown)
			if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err == nil {
				c.set(key, absent)
			} else if !unanswered(err) {
				c.fail("deleting %s: %w", key, err)
			}
		}
	}
}

// follow watches the register from the last version before the restart, until ctx ends or the server is killed.
func (c *cluster) follow(ctx context.Context, kube kubernetes.Interface) {
	for ctx.Err() == nil {
		events, err := kube.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{
			FieldSelector: "metadata.name=" + registerName, ResourceVersion: c.version, AllowWatchBookmarks: true,
		})
		if err != nil {
			if !unanswered(err) {
				c.fail("watching from %s: %w", c.version, err)
				return
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		for e := range events.ResultChan() {
			if e.Type == watch.Error && ctx.Err() != nil {
				break // the connection was closed in the middle of an event
			}
			object, ok := e.Object.(*corev1.ConfigMap)
			if !ok || (e.Type != watch.Modified && e.Type != watch.Bookmark) {
				c.fail("the watch delivered %s %v", e.Type, e.Object)
				break
			}
			c.mu.Lock()
			if c.version = object.ResourceVersion; e.Type == watch.Modified {
				c.seen = append(c.seen, seen{object.Data["value"], object.ResourceVersion})
			}
			c.mu.Unlock()
		}
		events.Stop()
	}
}
