package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// unreadSize is the size of an object that no controller reads: half of it is data, and half the annotation of kubectl apply.
	unreadSize = 5000
	// unreadClusters is the number of logical clusters with such objects.
	unreadClusters = 10
	// unreadBudget is the anonymous resident memory of each of them, in KiB.
	unreadBudget = 1
)

// runUnread measures the memory of n Secrets and n ConfigMaps that no controller reads, with the metadata that kubectl apply and Helm add.
func runUnread(ctx context.Context, n int, s scale) error {
	bin, dir, err := prepareWith("kcp")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kcp, err := startKCP(ctx, bin, filepath.Join(dir, "kcp"))
	if err != nil {
		return err
	}
	defer kcp.stop()
	for i := range unreadClusters {
		if err := kcp.tenant(ctx, unreadCluster(i), 0); err != nil {
			return err
		}
	}
	var rows []row
	for _, kind := range []string{"Secret", "ConfigMap"} {
		// What the first objects of a kind allocate once is not part of the cost of each.
		if _, err := kcp.createUnread(ctx, kind, "first", n/10); err != nil {
			return err
		}
		before, err := kcp.memory(ctx)
		if err != nil {
			return err
		}
		created, err := kcp.createUnread(ctx, kind, "more", n)
		if err != nil {
			return err
		}
		after, err := kcp.memory(ctx)
		if err != nil {
			return err
		}
		if err := kcp.heapProfile(ctx, s.profiles, "unread-"+kind); err != nil {
			return err
		}
		rows = append(rows, report(unreadRows(kind, n, before, after, created))...)
	}
	printTable(os.Stdout, rows)
	return nil
}

func unreadRows(kind string, n int, before, after memory, created load) []row {
	each := func(before, after float64) float64 { return (after - before) / 1024 / float64(n) }
	anonymous := each(before.anonymous, after.anonymous)
	return []row{
		{What: fmt.Sprintf("create %d %ss of %d bytes, %d clients", n, kind, unreadSize, connections), Unit: "1/s",
			Ours: created.perSecond, OursLoad: latencyOf(created)},
		{What: "anonymous resident memory of each, server and etcd", Unit: "KiB", Ours: anonymous,
			Budget: fmt.Sprintf("≤ %d KiB", unreadBudget), Met: anonymous <= unreadBudget},
		{What: "of which heap", Unit: "KiB", Ours: each(before.heap, after.heap)},
		{What: "resident memory of each, with pages of the database", Unit: "KiB", Ours: each(before.resident, after.resident)},
	}
}

func unreadCluster(i int) string { return fmt.Sprintf("unread-%d", i%unreadClusters) }

// createUnread creates n objects of a kind.
func (p *process) createUnread(ctx context.Context, kind, name string, n int) (load, error) {
	return measured(p, func() (load, error) {
		return count(ctx, connections, n, func(ctx context.Context, c, i int) error {
			kube, err := p.kube(unreadCluster(i), c)
			if err != nil {
				return err
			}
			payload, err := unreadPayload()
			if err != nil {
				return err
			}
			meta := metav1.ObjectMeta{
				Name:        fmt.Sprintf("%s-%d", name, i),
				Labels:      map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/instance": fmt.Sprintf("%s-%d", name, i)},
				Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: payload},
			}
			data := map[string]string{"payload": payload}
			if kind == "Secret" {
				_, err = kube.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: data}, metav1.CreateOptions{})
			} else {
				_, err = kube.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: data}, metav1.CreateOptions{})
			}
			return err
		})
	})
}

// unreadPayload returns the content of one of the two halves of an object. It hardly compresses.
func unreadPayload() (string, error) {
	content := make([]byte, unreadSize/4)
	_, err := rand.Read(content)
	return hex.EncodeToString(content), err
}
