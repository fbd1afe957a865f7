SELECT o_ol_cnt, COUNT(*) AS order_count FROM orders
WHERE o_entry_d >= '2015-07-01 00:00:00.000000' AND o_entry_d < '2015-10-01 00:00:00.000000'
  AND exists(o_orderline, l -> l.ol_delivery_d >=
      date_format(to_timestamp(o_entry_d) + INTERVAL 7 DAYS, 'yyyy-MM-dd HH:mm:ss'))
GROUP BY o_ol_cnt ORDER BY o_ol_cnt
