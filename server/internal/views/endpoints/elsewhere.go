package endpoints

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/kcplane/kcp/server/logicalcluster"
)

// This file reads endpoint slices of providers on other shards. Shards do not offer objects of any kind to each other, so this shard asks
// the one that holds the provider. Only workspaces that the administrator lists in Allowed cause questions.

// CallSlice is the name of the peer call by which the shard that holds a logical cluster returns an endpoint slice there.
const CallSlice = "endpoints.slice"

const (
	// answerLife is how long the answer of a shard counts, maxAnswers how many are in memory, and maxWait the time of a question.
	answerLife = 5 * time.Second
	maxAnswers = 1024
	maxWait    = 5 * time.Second
	// pollInterval is how often requests that last ask whether a slice of another shard has changed.
	pollInterval = 10 * time.Second
)

// Elsewhere reads endpoint slices in logical clusters of other shards.
type Elsewhere struct {
	// Shard is the name of this shard.
	Shard string
	// Holder returns the shard that holds a logical cluster.
	Holder func(context.Context, logicalcluster.Name) (string, error)
	// Ask sends CallSlice to another shard.
	Ask func(ctx context.Context, shard string, q Question) (Answer, error)
}

// Question names an endpoint slice.
type Question struct {
	Cluster logicalcluster.Name              `json:"cluster"`
	Slice   corev1.TypedLocalObjectReference `json:"slice"`
}

// String is unique to the question: the parts are names, which have no slashes.
func (q Question) String() string {
	return fmt.Sprintf("%s/%s/%s/%s", q.Cluster, ptr.Deref(q.Slice.APIGroup, ""), q.Slice.Kind, q.Slice.Name)
}

// Answer is what an endpoint slice says.
type Answer struct {
	// Version is another one after each change of the slice, and empty if the slice does not exist.
	Version   string     `json:"version,omitempty"`
	Endpoints []endpoint `json:"endpoints,omitempty"`
	// Invalid is why the reference cannot name an endpoint slice.
	Invalid string `json:"invalid,omitempty"`
}

// Slice answers a question about a logical cluster of this shard.
func (e *Endpoints) Slice(ctx context.Context, q Question) (Answer, error) {
	ctx, stored, err := e.slice(ctx, q.Cluster, q.Slice)
	if invalid := invalidReference(""); errors.As(err, &invalid) {
		return Answer{Invalid: err.Error()}, nil
	}
	if err != nil {
		return Answer{}, err
	}
	obj, err := stored.Get(ctx, q.Slice.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Answer{}, nil
	}
	if err != nil {
		return Answer{}, err
	}
	var status struct {
		Endpoints []endpoint `json:"endpoints"`
	}
	content, _, err := unstructured.NestedMap(obj.Object, "status")
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status) != nil {
		return Answer{}, nil
	}
	return Answer{Version: string(obj.GetUID()) + "/" + obj.GetResourceVersion(), Endpoints: status.Endpoints}, nil
}

// read returns an endpoint slice, also one on another shard. The error is for consumers.
func (e *Endpoints) read(ctx context.Context, q Question) (Answer, error) {
	shard, err := e.holder(ctx, q.Cluster)
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	if shard != "" {
		answer, err = e.ask(ctx, shard, q)
	} else if answer, err = e.Slice(ctx, q); err != nil {
		answer, err = Answer{}, nil // consumers see that it has no URL
	}
	if answer.Invalid != "" {
		err = invalidReference(answer.Invalid)
	}
	return answer, err
}

// holder returns the other shard that holds a logical cluster, and an empty name if this shard does, or if no URL is allowed for it.
func (e *Endpoints) holder(ctx context.Context, cluster logicalcluster.Name) (string, error) {
	if e.config.Elsewhere == nil || !e.mayPermit(cluster) {
		return "", nil
	}
	shard, err := e.config.Elsewhere.Holder(ctx, cluster)
	if shard == e.config.Elsewhere.Shard {
		shard = ""
	}
	return shard, err
}

// ask returns an endpoint slice of another shard. Requests at the same time cause one question.
func (e *Endpoints) ask(ctx context.Context, shard string, q Question) (Answer, error) {
	key := shard + "/" + q.String()
	if found, ok := e.answers.Get(key); ok {
		return found.(Answer), nil
	}
	got, err, _ := e.asking.Do(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxWait)
		defer cancel()
		answer, err := e.config.Elsewhere.Ask(ctx, shard, q)
		if err == nil {
			e.answers.Add(key, answer, answerLife)
		}
		return answer, err
	})
	if err != nil {
		return Answer{}, fmt.Errorf("asking shard %s for %s %s of the provider: %w: retry the request", shard, q.Slice.Kind, q.Slice.Name, err)
	}
	return got.(Answer), nil
}

// changedElsewhere is Changed for an endpoint slice of another shard. It asks again now and then, until ctx ends.
func (e *Endpoints) changedElsewhere(ctx context.Context, q Question) (<-chan struct{}, error) {
	first, err := e.read(ctx, q)
	if err != nil {
		return nil, err
	}
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		ticker := time.NewTicker(e.poll)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if now, err := e.read(ctx, q); err == nil && now.Version != first.Version {
				return
			}
		}
	}()
	return changed, nil
}
