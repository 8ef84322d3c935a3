package server

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kcplane/kcp/server/internal/process/decisionlog"
	"github.com/kcplane/kcp/server/internal/storage"
	"github.com/kcplane/kcp/server/logicalcluster"
)

const (
	// unreadableQueue is the maximum number of objects that wait for their Event, unreadableRate the number of Events created per second.
	unreadableQueue, unreadableRate = 1000, 10
	unreadableTimeout               = 10 * time.Second
)

// unreadableObjects creates an Event for each stored object that cannot be read, in the logical cluster of the object.
type unreadableObjects chan storage.Unreadable

func newUnreadableObjects() unreadableObjects {
	return make(unreadableObjects, unreadableQueue)
}

// add queues an object, and drops it if the queue is full.
func (o unreadableObjects) add(u storage.Unreadable) {
	select {
	case o <- u:
	default:
	}
}

// run creates Events until ctx ends.
func (o unreadableObjects) run(ctx context.Context, kube kubernetes.Interface) {
	limit := flowcontrol.NewTokenBucketRateLimiter(unreadableRate, unreadableRate)
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-o:
			if limit.Wait(ctx) != nil || u.Cluster.IsSystem() {
				continue
			}
			if err := createEvent(logicalcluster.WithName(ctx, u.Cluster), kube, unreadableEvent(u, metav1.Now())); err != nil {
				decisionlog.ForFailure(ctx, u.Cluster).Info("Creating the Event about an unreadable object failed", decisionlog.Cluster, u.Cluster,
					decisionlog.Resource, u.Resource.String(), decisionlog.Namespace, u.Namespace, decisionlog.Name, u.Name, decisionlog.Error, err)
			}
		}
	}
}

func createEvent(ctx context.Context, kube kubernetes.Interface, event *corev1.Event) error {
	ctx, cancel := context.WithTimeout(ctx, unreadableTimeout)
	defer cancel()
	_, err := kube.CoreV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	// The Event may exist, from another replica or an earlier process. The logical cluster may lack the namespace, or be deleted.
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// unreadableEvent returns the Event about an object. Its name is the same in all processes.
func unreadableEvent(u storage.Unreadable, now metav1.Time) *corev1.Event {
	namespace := u.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	message := fmt.Sprintf("the stored %s %q cannot be read, and the server ignores it or its conditions: delete it or write it again: %v",
		u.Resource, u.Name, u.Err)
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s/%s/%s", u.Resource, u.Namespace, u.Name)
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("unreadable.%x", hash.Sum64())},
		InvolvedObject: corev1.ObjectReference{APIVersion: u.Resource.Group, Kind: u.Resource.Resource, Namespace: u.Namespace, Name: u.Name},
		Reason:         "Unreadable", Message: message[:min(len(message), 1024)], Type: corev1.EventTypeWarning,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: "kcp"}, ReportingController: "kcp",
	}
}
