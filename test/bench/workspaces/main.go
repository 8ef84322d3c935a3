// Command workspaces creates workspaces as fast as it can, and prints the rate.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	n := flag.Int("n", 10000, "number of workspaces")
	workers := flag.Int("c", 32, "concurrent clients")
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig")
	prefix := flag.String("prefix", "w", "prefix of names")
	del := flag.Bool("delete", false, "delete")
	flag.Parse()
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	cfg.QPS = -1
	cfg.TLSClientConfig.NextProtos = nil
	_ = tls.Config{}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		log.Fatal(err)
	}
	var next, failed atomic.Int64
	lat := make([]time.Duration, *n)
	var wg sync.WaitGroup
	begin := time.Now()
	for range *workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				i := int(next.Add(1)) - 1
				if i >= *n {
					return
				}
				t := time.Now()
				body := fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"%s%d"},"spec":{"type":{"name":"universal","path":"root"}}}`, *prefix, i)
				method, url := "POST", cfg.Host+"/apis/tenancy.kcp.io/v1alpha1/workspaces"
				if *del {
					method, url, body = "DELETE", url+fmt.Sprintf("/%s%d", *prefix, i), ""
				}
				req, _ := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader([]byte(body)))
				req.Header.Set("Content-Type", "application/json")
				resp, err := client.Do(req)
				if err != nil {
					failed.Add(1)
					continue
				}
				b, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode >= 300 && failed.Add(1) < 5 {
					fmt.Println(resp.StatusCode, string(b))
				}
				lat[i] = time.Since(t)
			}
		}()
	}
	wg.Wait()
	d := time.Since(begin)
	sort.Slice(lat, func(i, j int) bool { return lat[i] < lat[j] })
	fmt.Printf("%d in %s: %.0f/s, p50 %s p99 %s, failed %d\n", *n, d, float64(*n)/d.Seconds(), lat[*n/2], lat[*n*99/100], failed.Load())
}
